"""The catalog: packages in, plans reviewed."""

from __future__ import annotations

import tempfile
from typing import Any

from django.core.files import File
from django.core.files.storage import default_storage
from django.db import transaction
from django.utils import timezone

from sandboxes.errors import InvalidRequest
from skills.inspect import describe
from skills.models import PlanRevision, Skill, SkillVersion
from skills.package import Package, read_package, to_tar
from skills.package.opening import PackageSource
from skills.plan import Plan, make_plan
from skills.ports import Actor, Event, announce

__all__ = ["add_package", "archive_skill", "open_package", "save_plan"]


def add_package(
    *, tenant: Any, source: PackageSource, actor: Actor, root: str | None = None
) -> SkillVersion:
    """Read, judge and keep a package. Idempotent: the same content is the version that exists.

    Raises PackageRefused, or RootChoiceNeeded when `root` must say which of several skills is meant.
    """
    with read_package(source, root=root) as package:
        found = _existing(tenant, package)
        if found is not None:
            return found
        archive = _store(package)
        return _add_version(tenant, package, archive, actor)


def open_package(version: SkillVersion) -> Package:
    """The stored package, to be closed by the caller."""
    with version.archive.open("rb") as stream:
        return read_package(stream)


@transaction.atomic
def save_plan(*, version: SkillVersion, plan: Plan, actor: Actor) -> PlanRevision:
    """Append a revision; an unchanged plan returns the present one."""
    SkillVersion.objects.select_for_update().get(pk=version.pk)
    last = version.current_plan
    content = plan.to_json()
    if content == last.content:
        return last
    revision = PlanRevision.objects.create(
        version=version, number=last.number + 1, content=content, created_by_id=actor.user_id
    )
    announce(
        Event(
            action="plan.save",
            actor=actor,
            tenant_id=version.skill.tenant_id,
            target=f"{version} plan {revision.number}",
            details={"before": last.content, "after": content},
        )
    )
    return revision


@transaction.atomic
def archive_skill(*, skill: Skill, actor: Actor) -> Skill:
    """Take it out of the catalog; releases that carry it are not touched. Idempotent. An upload of
    the same name brings it back."""
    if skill.archived_at is None:
        skill.archived_at = timezone.now()
        skill.save(update_fields=["archived_at"])
        announce(
            Event(action="skill.archive", actor=actor, tenant_id=skill.tenant_id, target=skill.name)
        )
    return skill


def _existing(tenant: Any, package: Package) -> SkillVersion | None:
    version = (
        SkillVersion.objects.select_related("skill")
        .filter(skill__tenant=tenant, skill__name=package.name, digest=package.digest)
        .first()
    )
    if version is not None and version.skill.archived_at is not None:
        version.skill.archived_at = None
        version.skill.save(update_fields=["archived_at"])
    return version


def _store(package: Package) -> str:
    """Keep the package as its canonical tar under its digest. Returns the name in the storage.

    A file of the right name and another size is what a crash left; it is replaced.
    """
    name = f"packages/{package.digest[:2]}/{package.digest}.tar"
    with tempfile.TemporaryFile() as spool:
        for chunk in to_tar(package):
            spool.write(chunk)
        size = spool.tell()
        if default_storage.exists(name):
            if default_storage.size(name) == size:
                return name
            default_storage.delete(name)
        spool.seek(0)
        return default_storage.save(name, File(spool))


@transaction.atomic
def _add_version(tenant: Any, package: Package, archive: str, actor: Actor) -> SkillVersion:
    _check_name(package.name)
    skill, _ = Skill.objects.get_or_create(tenant=tenant, name=package.name)
    skill = Skill.objects.select_for_update().get(pk=skill.pk)
    if (found := _existing(tenant, package)) is not None:
        return found
    last = skill.latest_version
    version = SkillVersion.objects.create(
        skill=skill,
        number=(last.number if last else 0) + 1,
        label=package.version or "",
        digest=package.digest,
        description=package.description,
        archive=archive,
        size_bytes=package.size_bytes,
        file_count=len(package.files),
        inspection=describe(package),
        created_by_id=actor.user_id,
    )
    PlanRevision.objects.create(
        version=version, number=1, content=make_plan(package).to_json(), created_by_id=actor.user_id
    )
    if skill.archived_at is not None:
        skill.archived_at = None
        skill.save(update_fields=["archived_at"])
    announce(
        Event(
            action="skill.add",
            actor=actor,
            tenant_id=skill.tenant_id,
            target=str(version),
            details={"digest": package.digest, "size_bytes": package.size_bytes},
        )
    )
    return version


def _check_name(name: str) -> None:
    """The reader refuses names that are no folder's; that they fit the column is ours to say."""
    if len(name) > 64:
        raise InvalidRequest(f"The skill's name has {len(name)} characters; use at most 64.")
