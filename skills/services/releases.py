"""What a space serves: roll back, roll out, delete."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction
from django.utils import timezone

from sandboxes.errors import Conflict, InvalidRequest
from skills.build import ledger
from skills.models import Build, Promotion, PromotionKind, Release, ReleaseState
from skills.ports import Actor, Event, SpacePort, announce

__all__ = [
    "check_percent",
    "check_release",
    "delete_release",
    "promote_candidate",
    "roll_back",
    "set_rollout",
    "start_rollout",
    "why_needed",
    "withdraw_candidate",
]


@transaction.atomic
def roll_back(
    *, space: SpacePort, release: Release, actor: Actor, reason: str = ""
) -> Promotion | None:
    """Point the space at an earlier (or later) release of its own. Idempotent: None if it serves it.

    Conflict, with the mend, if the release is broken, deleted or in another provider account.
    """
    _check_own(space, release)
    return _told(ledger.switch(release, kind=PromotionKind.ROLL_BACK, actor=actor, reason=reason))


@transaction.atomic
def start_rollout(
    *,
    space: SpacePort,
    release: Release,
    percent: int,
    sessions: Sequence[str] = (),
    actor: Actor,
    reason: str = "",
) -> Promotion:
    """Make a release the candidate: `percent` of new sessions and the named `sessions` get it."""
    _check_own(space, release)
    check_percent(percent)
    if release.pk == ledger.lock_space(space.pk).current_release_id:
        raise Conflict(f"Release {release.generation} already serves every session of this space.")
    promotion = ledger.set_candidate(
        release, percent=percent, sessions=list(sessions), actor=actor, reason=reason
    )
    _tell_later(promotion)
    return promotion


@transaction.atomic
def set_rollout(
    *, space: SpacePort, percent: int, sessions: Sequence[str], actor: Actor, reason: str = ""
) -> Promotion:
    """Change the candidate's share. Conflict if there is no candidate."""
    candidate = ledger.lock_space(space.pk).candidate_release
    if candidate is None:
        raise Conflict("This space has no candidate release; build or choose one first.")
    return start_rollout(
        space=space,
        release=candidate,
        percent=percent,
        sessions=sessions,
        actor=actor,
        reason=reason,
    )


@transaction.atomic
def promote_candidate(*, space: SpacePort, actor: Actor, reason: str = "") -> Promotion | None:
    """The candidate becomes the release that every session gets."""
    candidate = ledger.lock_space(space.pk).candidate_release
    if candidate is None:
        raise Conflict("This space has no candidate release to promote.")
    return _told(ledger.switch(candidate, kind=PromotionKind.PROMOTE, actor=actor, reason=reason))


@transaction.atomic
def withdraw_candidate(*, space: SpacePort, actor: Actor, reason: str = "") -> Promotion | None:
    """No session gets the candidate any more. Idempotent: None if there is none."""
    return _told(ledger.withdraw(space.pk, actor=actor, reason=reason))


@transaction.atomic
def delete_release(*, release: Release, actor: Actor) -> Release:
    """Delete its snapshot at the provider, by a worker; the row stays as history. Idempotent.

    Conflict while it serves, is the candidate, carries running sessions or is being built upon.
    """
    space = ledger.lock_space(release.space_id)
    release = Release.objects.select_for_update().get(pk=release.pk)
    if release.state == ReleaseState.DELETED or release.delete_requested_at:
        return release
    if reason := why_needed(release, space):
        raise Conflict(reason)
    release.delete_requested_at = timezone.now()
    release.save(update_fields=["delete_requested_at"])
    announce(
        Event(
            action="release.delete",
            actor=actor,
            tenant_id=space.tenant_id,
            space_id=space.pk,
            target=f"{space.slug} release {release.generation}",
        )
    )
    from skills.tasks import delete_snapshot

    transaction.on_commit(lambda: delete_snapshot.delay(release.pk), robust=True)
    return release


def check_release(*, release: Release) -> None:
    """Have a worker look whether its snapshot still exists; if not, it becomes broken."""
    from skills.tasks import check_snapshot

    transaction.on_commit(lambda: check_snapshot.delay(release.pk))


def why_needed(release: Release, space: SpacePort) -> str:
    """Why its snapshot can't be deleted now, as a sentence with the mend; empty if it can."""
    what = f"Release {release.generation}"
    if release.pk == space.current_release_id:
        return f"{what} is what this space serves; switch to another one first."
    if release.pk == space.candidate_release_id:
        return f"{what} is the candidate; withdraw it first."
    if release.state == ReleaseState.BUILDING:
        return f"{what} is still being built; cancel its build first."
    if Build.objects.unfinished().filter(parent=release).exists():
        return f"{what} is what a running build started from; wait for it or cancel it."
    running = release.live_sessions().count()
    if running:
        return (
            f"{what} carries {running} running session(s); destroy them or let them move on first."
        )
    return ""


def _check_own(space: SpacePort, release: Release) -> None:
    if release.space_id != space.pk:
        raise InvalidRequest("There is no such release in this space.")


def check_percent(percent: int) -> None:
    if not 0 <= percent <= 100:
        raise InvalidRequest(f"{percent} is no percentage; give 0 to 100.")


def _told(promotion: Promotion | None) -> Promotion | None:
    if promotion is not None:
        _tell_later(promotion)
    return promotion


def _tell_later(promotion: Promotion) -> None:
    from skills.tasks import tell_sessions

    transaction.on_commit(lambda: tell_sessions.delay(promotion.pk), robust=True)
