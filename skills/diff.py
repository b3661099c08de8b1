"""What changed between two releases: skills, files, packages, size. Pure."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Change", "ChangeKind", "Manifest", "ReleaseDiff", "SkillEntry", "compare"]


class ChangeKind(enum.StrEnum):
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference. `before` is empty for what was added, `after` for what was removed; `scope` is the
    skill that it belongs to, empty for the system's."""

    kind: ChangeKind
    name: str
    scope: str = ""
    before: str = ""
    after: str = ""

    def to_json(self) -> dict[str, str]:
        return {
            "kind": self.kind.value,
            "name": self.name,
            "scope": self.scope,
            "before": self.before,
            "after": self.after,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillEntry:
    """`version` is for people; `files` maps a path to its SHA-256, with a mark if it is executable."""

    digest: str
    version: str
    plan_digest: str
    files: Mapping[str, str]
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a release carries. `packages` is Release.packages."""

    skills: Mapping[str, SkillEntry]
    packages: Mapping[str, Any]
    size_bytes: int | None = None
    template_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseDiff:
    skills: tuple[Change, ...]
    files: tuple[Change, ...]
    pip: tuple[Change, ...]
    npm: tuple[Change, ...]
    apt: tuple[Change, ...]
    size_before_bytes: int | None
    size_after_bytes: int | None
    template: Change | None = None

    @property
    def is_empty(self) -> bool:
        """Equal in everything but, perhaps, the size."""
        parts = (self.skills, self.files, self.pip, self.npm, self.apt)
        return self.template is None and not any(parts)

    @property
    def size_change_bytes(self) -> int | None:
        if self.size_before_bytes is None or self.size_after_bytes is None:
            return None
        return self.size_after_bytes - self.size_before_bytes

    def to_json(self) -> dict[str, Any]:
        parts = ("skills", "files", "pip", "npm", "apt")
        return {
            **{part: [change.to_json() for change in getattr(self, part)] for part in parts},
            "template": self.template and self.template.to_json(),
            "size_before_bytes": self.size_before_bytes,
            "size_after_bytes": self.size_after_bytes,
            "size_change_bytes": self.size_change_bytes,
        }


def compare(before: Manifest, after: Manifest) -> ReleaseDiff:
    """Changes in order of scope and name."""
    return ReleaseDiff(
        skills=tuple(_changes(before.skills, after.skills, show=lambda entry: entry.version)),
        files=tuple(_files(before.skills, after.skills)),
        pip=tuple(_scoped(before.packages.get("pip", {}), after.packages.get("pip", {}))),
        npm=tuple(_scoped(before.packages.get("npm", {}), after.packages.get("npm", {}))),
        apt=tuple(_changes(before.packages.get("apt", {}), after.packages.get("apt", {}))),
        size_before_bytes=before.size_bytes,
        size_after_bytes=after.size_bytes,
        template=_template(before.template_id, after.template_id),
    )


def _changes(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    *,
    scope: str = "",
    show: Callable[[Any], str] = str,
) -> Iterator[Change]:
    for name in _names(before, after):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        kind = ChangeKind.CHANGED
        if old is None:
            kind = ChangeKind.ADDED
        elif new is None:
            kind = ChangeKind.REMOVED
        yield Change(
            kind=kind,
            name=name,
            scope=scope,
            before="" if old is None else show(old),
            after="" if new is None else show(new),
        )


def _scoped(
    before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]]
) -> Iterator[Change]:
    for scope in _names(before, after):
        yield from _changes(before.get(scope, {}), after.get(scope, {}), scope=scope)


def _files(before: Mapping[str, SkillEntry], after: Mapping[str, SkillEntry]) -> Iterator[Change]:
    """Of the skills in both; the files of one that came or went are not listed one by one."""
    for skill in sorted(before.keys() & after.keys()):
        if before[skill].digest != after[skill].digest:
            yield from _changes(before[skill].files, after[skill].files, scope=skill, show=_short)


def _template(before: str, after: str) -> Change | None:
    if before == after:
        return None
    return Change(kind=ChangeKind.CHANGED, name="base template", before=before, after=after)


def _names(before: Iterable[str], after: Iterable[str]) -> list[str]:
    return sorted({*before, *after})


def _short(digest: str) -> str:
    return digest[:12]
