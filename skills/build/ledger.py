"""The rows that must be right: a release stands in the ledger before its snapshot exists, and a space's
pointer moves together with the outcome of the build that made it, in one transaction."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.db import transaction
from django.db.models import Max, QuerySet
from django.utils import timezone

from sandboxes.errors import Conflict
from skills.changes import SkillSet
from skills.models import (
    Build,
    BuildSkill,
    Promotion,
    PromotionKind,
    Release,
    ReleaseSkill,
    ReleaseState,
    SkillVersion,
)
from skills.ports import SYSTEM, Actor, Event, SpacePort, Switch, announce, on_switch

__all__ = [
    "activate",
    "adopt",
    "check_usable",
    "clear",
    "drop",
    "is_shared",
    "lock_space",
    "mark_broken",
    "mend",
    "plan_release",
    "release_set",
    "set_candidate",
    "supersede_others",
    "switch",
    "tell_sessions",
    "withdraw",
    "write_items",
]


def lock_space(space_id: str) -> Any:
    """The space's row, locked until the end of the transaction, as it is now."""
    spaces: QuerySet[Any] = apps.get_model("tenants", "Space").objects.all()
    return (
        spaces.select_for_update(of=("self",))
        .select_related("backend", "current_release", "candidate_release")
        .get(pk=space_id)
    )


def release_set(release: Release | None) -> SkillSet:
    """What a release carries; the base template carries nothing."""
    if release is None:
        return ()
    return tuple(release.items.values_list("version__skill_id", "version_id"))


def write_items(build: Build, wanted: SkillSet) -> None:
    """Replace the build's list of skills, each with its newest plan."""
    build.items.all().delete()
    versions = SkillVersion.objects.in_bulk([version for _, version in wanted])
    BuildSkill.objects.bulk_create(
        BuildSkill(
            build=build,
            position=position,
            version=versions[version],
            plan=versions[version].current_plan,
        )
        for position, (_, version) in enumerate(wanted)
    )


@transaction.atomic
def plan_release(
    build: Build, *, packages: dict[str, Any], sizes: dict[str, int], sandbox_id: str
) -> Release:
    """The ledger row of a snapshot that does not exist yet, under the name that it will have.
    Idempotent for a build: a row that an earlier attempt left keeps its name and is brought up to date."""
    space = lock_space(build.space_id)
    existing = Release.objects.filter(build=build).first()
    if existing is not None:
        existing.packages, existing.sizes = packages, sizes
        existing.source_sandbox_id = sandbox_id
        existing.parent_id, existing.template_id = build.parent_id, build.template_id
        existing.fingerprint, existing.inputs_digest = build.fingerprint, build.inputs_digest
        existing.save()
        return existing
    last = Release.objects.filter(space_id=space.pk).aggregate(last=Max("generation"))["last"] or 0
    release = Release(
        space_id=space.pk,
        generation=last + 1,
        build=build,
        parent_id=build.parent_id,
        backend_id=space.backend_id,
        fingerprint=build.fingerprint,
        inputs_digest=build.inputs_digest,
        template_id=build.template_id,
        source_sandbox_id=sandbox_id,
        packages=packages,
        sizes=sizes,
        note=build.note,
        created_by_id=build.created_by_id,
    )
    short = space.pk.partition("_")[2][-10:]
    release.planned_name = f"skillyard-{short}-g{release.generation}-{release.pk[-8:]}"
    release.save(force_insert=True)
    ReleaseSkill.objects.bulk_create(
        ReleaseSkill(
            release=release,
            position=item.position,
            version_id=item.version_id,
            plan_id=item.plan_id,
        )
        for item in build.items.all()
    )
    return release


def activate(release: Release, *, snapshot_id: str, size_bytes: int | None) -> None:
    """The snapshot exists. Idempotent; only a release that is still being built is changed."""
    Release.objects.filter(pk=release.pk, state=ReleaseState.BUILDING).update(
        state=ReleaseState.ACTIVE,
        snapshot_id=snapshot_id,
        size_bytes=size_bytes,
        activated_at=timezone.now(),
    )
    release.refresh_from_db()


@transaction.atomic
def adopt(build: Build, donor: Release) -> Release | None:
    """A release of the build's space upon the snapshot of another space's release of the same tenant. None if
    that is being deleted meanwhile. Idempotent for a build.

    Whoever deletes a release asks for it first and looks for others upon its snapshot afterwards, so that one
    of the two sees the other.
    """
    donor = Release.objects.select_for_update().get(pk=donor.pk)
    if donor.delete_requested_at or not Release.objects.kept().filter(pk=donor.pk).exists():
        return None
    release = plan_release(
        build, packages=donor.packages, sizes=donor.sizes, sandbox_id=donor.source_sandbox_id
    )
    release.parent_id = donor.parent_id
    release.save(update_fields=["parent"])
    activate(release, snapshot_id=donor.snapshot_id, size_bytes=donor.size_bytes)
    return release


def is_shared(release: Release) -> bool:
    """Another release stands upon the same snapshot."""
    return bool(release.snapshot_id) and (
        Release.objects.kept()
        .filter(snapshot_id=release.snapshot_id, fingerprint=release.fingerprint)
        .exclude(pk=release.pk)
        .exists()
    )


def drop(release: Release) -> None:
    """Its snapshot is gone, or never came to be. Idempotent."""
    Release.objects.filter(pk=release.pk).exclude(state=ReleaseState.DELETED).update(
        state=ReleaseState.DELETED, deleted_at=timezone.now()
    )


def switch(
    release: Release, *, kind: PromotionKind, actor: Actor, reason: str = ""
) -> Promotion | None:
    """Point the space at the release, in the caller's transaction. None if it does so already.

    Conflict if the release can't start on the space's backend, or in the account that it uses now.
    """
    space = lock_space(release.space_id)
    release.refresh_from_db()
    check_usable(release, space)
    if space.current_release_id == release.pk and space.candidate_release_id is None:
        return None
    space.current_release = release
    _forget_candidate(space)
    space.save(
        update_fields=[
            "current_release", "candidate_release", "rollout_percent", "rollout_sessions"
        ]
    )  # fmt: skip
    Release.objects.filter(pk=release.pk).update(state=ReleaseState.ACTIVE, superseded_at=None)
    supersede_others(space)
    return _promotion(space, release, kind, actor, reason)


def clear(space_id: str, *, actor: Actor, reason: str = "") -> Promotion | None:
    """Point the space at its base template: it has no skill left."""
    space = lock_space(space_id)
    if space.current_release_id is None and space.candidate_release_id is None:
        return None
    space.current_release = None
    _forget_candidate(space)
    space.save(
        update_fields=[
            "current_release", "candidate_release", "rollout_percent", "rollout_sessions"
        ]
    )  # fmt: skip
    supersede_others(space)
    return _promotion(space, None, PromotionKind.CLEAR, actor, reason)


def set_candidate(
    release: Release,
    *,
    percent: int,
    sessions: list[str],
    actor: Actor,
    reason: str = "",
) -> Promotion:
    """Serve the release to a share of new sessions and to named ones, in the caller's transaction."""
    space = lock_space(release.space_id)
    release.refresh_from_db()
    check_usable(release, space)
    space.candidate_release = release
    space.rollout_percent, space.rollout_sessions = percent, sessions
    space.save(update_fields=["candidate_release", "rollout_percent", "rollout_sessions"])
    Release.objects.filter(pk=release.pk).update(state=ReleaseState.ACTIVE, superseded_at=None)
    supersede_others(space)
    return _promotion(space, release, PromotionKind.CANDIDATE, actor, reason, sessions)


def withdraw(space_id: str, *, actor: Actor, reason: str = "") -> Promotion | None:
    space = lock_space(space_id)
    release = space.candidate_release
    if release is None:
        return None
    _forget_candidate(space)
    space.save(update_fields=["candidate_release", "rollout_percent", "rollout_sessions"])
    supersede_others(space)
    return _promotion(space, release, PromotionKind.WITHDRAW, actor, reason)


def supersede_others(space: SpacePort) -> int:
    """Every active release that neither serves nor is the candidate is superseded now."""
    serving = [pk for pk in (space.current_release_id, space.candidate_release_id) if pk]
    return (
        Release.objects.filter(space_id=space.pk, state=ReleaseState.ACTIVE)
        .exclude(pk__in=serving)
        .update(state=ReleaseState.SUPERSEDED, superseded_at=timezone.now())
    )


def check_usable(release: Release, space: SpacePort) -> None:
    """Conflict with the reason if no sandbox of the space could start from the release."""
    if release.usable_on(space.backend):
        return
    what = f"Release {release.generation}"
    if release.state == ReleaseState.BROKEN:
        raise Conflict(f"{what} is broken: {release.problem} Rebuild it.")
    if release.state == ReleaseState.DELETED or release.delete_requested_at:
        raise Conflict(f"{what} was deleted; build its skills again.")
    if release.state == ReleaseState.BUILDING:
        raise Conflict(f"{what} is still being built; wait for its build.")
    raise Conflict(
        f"{what} lives in another provider account than the backend “{space.backend.name}” uses now; "
        "restore the credentials or rebuild."
    )


@transaction.atomic
def mark_broken(release: Release, *, problem: str) -> bool:
    """Its snapshot is missing at the provider. True if that was news."""
    changed = (
        Release.objects.kept()
        .filter(pk=release.pk)
        .update(state=ReleaseState.BROKEN, problem=problem[:300])
    )
    release.refresh_from_db()
    if changed:
        space = release.space
        announce(
            Event(
                action="release.broken",
                actor=SYSTEM,
                tenant_id=space.tenant_id,
                space_id=space.pk,
                target=f"{space.slug} release {release.generation}",
                outcome="failed",
                details={"problem": problem, "snapshot_id": release.snapshot_id},
            )
        )
    return bool(changed)


@transaction.atomic
def mend(release: Release) -> bool:
    """Its snapshot is there after all. True if it was broken until now."""
    space = lock_space(release.space_id)
    serving = release.pk in (space.current_release_id, space.candidate_release_id)
    changed = Release.objects.filter(pk=release.pk, state=ReleaseState.BROKEN).update(
        state=ReleaseState.ACTIVE if serving else ReleaseState.SUPERSEDED,
        problem="",
        superseded_at=None if serving else timezone.now(),
    )
    release.refresh_from_db()
    return bool(changed)


def tell_sessions(promotion: Promotion) -> None:
    """Have the running sessions marked stale. Idempotent: the listeners are, and the promotion keeps that
    they returned. Raises what a listener raises; the sweep tries again."""
    if promotion.sessions_told_at is not None:
        return
    what = f"release {promotion.release.generation}" if promotion.release else "the base template"
    notice = Switch(
        space_id=promotion.space_id,
        reason=promotion.reason or f"The space was switched to {what}.",
        session_ids=None if promotion.session_ids is None else tuple(promotion.session_ids),
    )
    for listener in on_switch:
        listener(notice)
    promotion.sessions_told_at = timezone.now()
    promotion.save(update_fields=["sessions_told_at"])


def _forget_candidate(space: Any) -> None:
    space.candidate_release = None
    space.rollout_percent, space.rollout_sessions = 0, []


def _promotion(
    space: Any,
    release: Release | None,
    kind: PromotionKind,
    actor: Actor,
    reason: str,
    session_ids: list[str] | None = None,
) -> Promotion:
    promotion = Promotion.objects.create(
        space_id=space.pk,
        release=release,
        kind=kind,
        reason=reason[:300],
        session_ids=session_ids,
        created_by_id=actor.user_id,
    )
    announce(
        Event(
            action=f"release.{kind.value}",
            actor=actor,
            tenant_id=space.tenant_id,
            space_id=space.pk,
            target=f"{space.slug} {release or 'base template'}",
            details={"reason": reason},
        )
    )
    return promotion
