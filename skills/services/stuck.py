"""Builds that nobody works on though somebody should: what is known of them, and taking one up now.

The sweep does the same by itself (`skills.reaper`); this is for people who look at it meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from sandboxes.errors import Conflict
from skills.build.claim import silence
from skills.build.settings import MAX_ATTEMPTS, BuildSettings
from skills.models import Build, BuildState
from skills.ports import Actor, Event, announce
from skills.services.builds import dispatch

__all__ = ["Stuck", "stuck", "take_up"]

_UNCLAIMED_AFTER_S = 120.0
"""A queued build that is next may wait for this long: a message takes its time while workers are busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """`is_claimed`: a worker had it and fell silent; else none took it up. Times in seconds."""

    is_claimed: bool
    silent_s: float
    swept_in_s: float
    """Until the sweep counts it as left behind; 0 is the next sweep, at most a minute away."""
    held_s: float
    """Until a dead worker's lease of the space lapses: before that, nobody can take it up."""
    is_last_attempt: bool
    """It will not be tried again, but failed, when it is taken up."""


def stuck(build: Build, *, next_since: datetime | None = None) -> Stuck | None:
    """None for a build that is over, or waits its turn, or whose worker was heard of lately. Of a queued one,
    `next_since` says when the build before it in its space ended: asked of the database unless it is given."""
    settings = BuildSettings.current()
    silent_s = silence(build).total_seconds()
    if build.state == BuildState.RUNNING and silent_s > settings.lease_s / 2:
        return Stuck(
            is_claimed=True,
            silent_s=silent_s,
            swept_in_s=max(settings.stuck_after_s - silent_s, 0.0),
            held_s=max(settings.lease_s - silent_s, 0.0),
            is_last_attempt=build.attempt >= MAX_ATTEMPTS,
        )
    if build.state != BuildState.QUEUED or _s_since(build.created_at) < _UNCLAIMED_AFTER_S:
        return None
    if next_since is None:
        if build.queue_position:
            return None
        next_since = _last_end(build)
    # Its heartbeat tells nothing: the sweep touches that of queued ones.
    waited_s = min(_s_since(build.created_at), _s_since(next_since or build.created_at))
    if waited_s < _UNCLAIMED_AFTER_S:
        return None
    return Stuck(
        is_claimed=False, silent_s=waited_s, swept_in_s=0.0, held_s=0.0, is_last_attempt=False
    )


def _last_end(build: Build) -> datetime | None:
    ended = Build.objects.filter(space=build.space_id, finished_at__isnull=False)
    return ended.order_by("-finished_at").values_list("finished_at", flat=True).first()


def _s_since(moment: datetime) -> float:
    return (timezone.now() - moment).total_seconds()


@transaction.atomic
def take_up(*, build: Build, actor: Actor) -> None:
    """Hand a stuck build to a worker now. Conflict if it is not stuck, or a lease still holds its space."""
    found = stuck(build)
    if found is None:
        raise Conflict(
            "This build is not stuck: it is over, or waits its turn, or its worker lives."
        )
    if found.held_s:
        raise Conflict(
            "The worker that had it may still come back; ask again in a minute.",
            op="build",
            retry_after_s=found.held_s,
        )
    announce(
        Event(
            action="build.take_up",
            actor=actor,
            tenant_id=build.space.tenant_id,
            space_id=build.space_id,
            target=build.pk,
            details={"silent_s": round(found.silent_s), "attempt": build.attempt},
        )
    )
    dispatch(build.pk)
