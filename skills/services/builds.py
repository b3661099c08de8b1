"""Asking for builds, and stopping them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from sandboxes.errors import Conflict, InvalidRequest
from skills.build.claim import silence
from skills.build.ledger import lock_space, release_set, write_items
from skills.build.settings import BuildSettings
from skills.changes import Changes, SkillSet
from skills.models import (
    Build,
    BuildState,
    BuildTrigger,
    Skill,
    SkillVersion,
)
from skills.ports import Actor, Event, SpacePort, announce
from skills.services.releases import check_percent

__all__ = [
    "apply_hint",
    "cancel_build",
    "compact",
    "dispatch",
    "install",
    "rebuild",
    "request_build",
    "retry_build",
    "uninstall",
    "upgrade",
    "wanted_versions",
]

_DEAD_AFTER = timedelta(seconds=BuildSettings().lease_s)


def install(*, space: SpacePort, version: SkillVersion, actor: Actor, note: str = "") -> Build:
    """Add a skill to the space, or put another version of it in the old one's place."""
    return request_build(space=space, actor=actor, add=[version], note=note)


def upgrade(
    *,
    space: SpacePort,
    version: SkillVersion,
    actor: Actor,
    note: str = "",
    rollout_percent: int | None = None,
    rollout_sessions: Sequence[str] = (),
) -> Build:
    """Like `install`, for a skill that the space has. The old version serves until the switch."""
    if all(have.skill_id != version.skill_id for have in wanted_versions(space)):
        raise Conflict(f"This space does not have “{version.skill.name}”; install it instead.")
    return request_build(
        space=space,
        actor=actor,
        add=[version],
        note=note,
        rollout_percent=rollout_percent,
        rollout_sessions=rollout_sessions,
    )


def uninstall(*, space: SpacePort, skill: Skill, actor: Actor, note: str = "") -> Build:
    """Take a skill out. Without its last skill a space serves its base template, which needs no
    sandbox."""
    return request_build(space=space, actor=actor, remove=[skill], note=note)


def compact(*, space: SpacePort, actor: Actor) -> Build:
    """The same skills once more, from the base template: without what earlier builds left behind."""
    return _again(space, actor, BuildTrigger.COMPACT)


def rebuild(*, space: SpacePort, actor: Actor) -> Build:
    """The same skills from their stored packages: after a change of credentials, or when the release is
    broken."""
    return _again(space, actor, BuildTrigger.REBUILD)


def _again(space: SpacePort, actor: Actor, trigger: BuildTrigger) -> Build:
    if not wanted_versions(space):
        raise Conflict("This space has no skills, so there is nothing to build.")
    return request_build(space=space, actor=actor, trigger=trigger, from_base=True)


def wanted_versions(space: SpacePort) -> list[SkillVersion]:
    """The skill set that the space will have when its unfinished builds have succeeded, in order."""
    ids = [version for _, version in wanted_set(space)]
    found = SkillVersion.objects.select_related("skill").in_bulk(ids)
    return [found[pk] for pk in ids]


def wanted_set(space: SpacePort) -> SkillSet:
    present = release_set(space.current_release)
    for build in Build.objects.unfinished().filter(space_id=space.pk).order_by("pk"):
        if build.rollout_percent is None:
            present = Changes.from_json(build.changes).apply(present)
    return present


@transaction.atomic
def request_build(
    *,
    space: SpacePort,
    actor: Actor,
    add: Iterable[SkillVersion] = (),
    remove: Iterable[Skill] = (),
    versions: Iterable[SkillVersion] | None = None,
    trigger: BuildTrigger = BuildTrigger.CHANGE,
    from_base: bool = False,
    rollout_percent: int | None = None,
    rollout_sessions: Sequence[str] = (),
    note: str = "",
) -> Build:
    """Queue a build of the space's set after `add` and `remove`, or of exactly `versions`.

    `from_base` also rules out the use of an earlier identical release. With `rollout_percent` the
    result becomes the candidate for that share of new sessions and for `rollout_sessions`.
    Idempotent while it is queued: the same wish is the same build.
    Conflict for a skill that is not there to be removed, for a backend that starts nothing new and for a
    space that is being deleted; InvalidRequest for a version of another tenant or two versions of one skill.
    """
    space = lock_space(space.pk)
    space.require_kept()
    space.backend.require_open()
    changes = _changes(space, add, remove, versions)
    if rollout_percent is not None:
        check_percent(rollout_percent)
    wish = {
        "trigger": trigger,
        "from_base": from_base,
        "changes": changes.to_json(),
        "rollout_percent": rollout_percent,
        "rollout_sessions": list(rollout_sessions),
    }
    present = wanted_set(space)
    queued = Build.objects.filter(space_id=space.pk, state=BuildState.QUEUED).first()
    if queued is not None and all(getattr(queued, key) == value for key, value in wish.items()):
        return queued
    build = Build.objects.create(
        space_id=space.pk, note=note[:300], created_by_id=actor.user_id, **wish
    )
    write_items(build, changes.apply(present))
    announce(
        Event(
            action="build.request",
            actor=actor,
            tenant_id=space.tenant_id,
            space_id=space.pk,
            target=build.pk,
            details={"trigger": trigger, "skills": [str(i.version) for i in build.items.all()]},
        )
    )
    dispatch(build.pk)
    return build


@transaction.atomic
def cancel_build(*, build: Build, actor: Actor) -> Build:
    """Stop it: at once while it is queued, else within seconds, its running command included; where its worker
    died, by the next one. Idempotent. Conflict if it is over: what was switched stays."""
    build = Build.objects.select_for_update(of=("self",)).select_related("space").get(pk=build.pk)
    if build.state == BuildState.CANCELLED or build.cancel_requested_at:
        return build
    if build.is_finished:
        raise Conflict(
            "This build is over, so it can't be cancelled; roll back its release instead."
        )
    now = timezone.now()
    build.cancel_requested_at = now
    if build.state == BuildState.QUEUED:
        build.state, build.finished_at = BuildState.CANCELLED, now
    build.save(update_fields=["cancel_requested_at", "state", "finished_at"])
    if build.state == BuildState.RUNNING and silence(build) > _DEAD_AFTER:
        dispatch(build.pk)  # nobody is there to see the wish: who takes it up next ends it
    announce(
        Event(
            action="build.cancel",
            actor=actor,
            tenant_id=build.space.tenant_id,
            space_id=build.space_id,
            target=build.pk,
        )
    )
    return build


def retry_build(*, build: Build, actor: Actor) -> Build:
    """Queue the same wish again, with the plans as they are now. Conflict unless it failed or was
    cancelled."""
    if build.state not in (BuildState.FAILED, BuildState.CANCELLED):
        raise Conflict("Only a build that failed or was cancelled can be tried again.")
    changes = Changes.from_json(build.changes)
    ids = [version for _, version in (*changes.add, *(changes.whole or ()))]
    found = SkillVersion.objects.in_bulk(ids)
    skills = Skill.objects.in_bulk(changes.remove)
    whole = None if changes.whole is None else [found[pk] for _, pk in changes.whole]
    return request_build(
        space=build.space,
        actor=actor,
        add=[found[pk] for _, pk in changes.add],
        remove=skills.values(),
        versions=whole,
        trigger=BuildTrigger(build.trigger),
        from_base=build.from_base,
        rollout_percent=build.rollout_percent,
        rollout_sessions=build.rollout_sessions,
        note=build.note,
    )


@transaction.atomic
def apply_hint(*, build: Build, index: int, actor: Actor) -> Build:
    """Carry out repair hint number `index` of the build's report: the plan gets a revision, and the build
    is tried again. InvalidRequest if there is no such hint."""
    from skills.services.hints import apply

    apply(build=build, index=index, actor=actor)
    return retry_build(build=build, actor=actor)


def dispatch(build_id: str) -> None:
    """Hand it to a worker once the transaction is committed. The sweep does it too, if that is lost."""
    from skills.tasks import run_build

    transaction.on_commit(lambda: run_build.delay(build_id), robust=True)


def _changes(
    space: SpacePort,
    add: Iterable[SkillVersion],
    remove: Iterable[Skill],
    versions: Iterable[SkillVersion] | None,
) -> Changes:
    if versions is not None:
        return Changes(whole=_checked(space, versions))
    present = {skill for skill, _ in wanted_set(space)}
    removed = list(remove)
    for skill in removed:
        if skill.pk not in present:
            raise Conflict(f"This space does not have “{skill.name}”, so it can't be removed.")
    return Changes(add=_checked(space, add), remove=tuple(skill.pk for skill in removed))


def _checked(space: SpacePort, versions: Iterable[SkillVersion]) -> SkillSet:
    found: dict[str, str] = {}
    for version in versions:
        if version.skill.tenant_id != space.tenant_id:
            raise InvalidRequest(f"There is no skill version {version.pk} in this tenant.")
        if version.skill_id in found:
            raise InvalidRequest(
                f"“{version.skill.name}” is named twice; choose one version of it."
            )
        found[version.skill_id] = version.pk
    return tuple(found.items())
