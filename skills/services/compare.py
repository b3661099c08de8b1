"""The diff of two releases, from their rows."""

from __future__ import annotations

from skills.diff import Manifest, ReleaseDiff, SkillEntry, compare
from skills.models import Release

__all__ = ["diff_releases", "manifest_of"]


def diff_releases(*, before: Release | None, after: Release | None) -> ReleaseDiff:
    """What changed; None stands for the base template without skills."""
    return compare(manifest_of(before), manifest_of(after))


def manifest_of(release: Release | None) -> Manifest:
    if release is None:
        return Manifest(skills={}, packages={})
    rows = release.items.select_related("version__skill", "plan")
    return Manifest(
        skills={
            row.version.skill.name: SkillEntry(
                digest=row.version.digest,
                version=f"#{row.version.number}"
                + (f" ({row.version.label})" if row.version.label else "")
                + f", plan {row.plan.number}",
                plan_digest=row.plan.plan().digest,
                files={
                    file["path"]: file["sha256"] + ("+x" if file["executable"] else "")
                    for file in row.version.inspection["files"]
                },
                size_bytes=release.sizes.get(row.version.skill.name, 0),
            )
            for row in rows
        },
        packages=release.packages,
        size_bytes=release.size_bytes,
        template_id=release.template_id,
    )
