"""How many sessions there were over time: counted every five minutes, told for any set of spaces.

All spaces are counted at once, at moments that everybody agrees on. After two days one moment an hour is
kept, after 90 days none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.db import transaction
from django.db.models import Count, F, Q, QuerySet, Sum
from django.utils import timezone

from console.fleet.models import Sampling, Session, SessionSample, SessionState
from console.tenants.models import Space

__all__ = [
    "COUNTED",
    "EVERY",
    "Counted",
    "Moment",
    "over_time",
    "slot",
    "take_sample",
    "thin_samples",
]

COUNTED = (SessionState.ACTIVE, SessionState.PAUSED, SessionState.LOST)
"""The rest are over."""
EVERY = timedelta(minutes=5)
_KEEP_ALL = timedelta(days=2)
_KEEP = timedelta(days=90)
_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Sessions with a running sandbox, with a paused one, and those that lost theirs."""

    active: int = 0
    paused: int = 0
    lost: int = 0

    def __add__(self, other: Counted) -> Counted:
        return Counted(
            active=self.active + other.active,
            paused=self.paused + other.paused,
            lost=self.lost + other.lost,
        )

    @property
    def live(self) -> int:
        """Those that have a sandbox."""
        return self.active + self.paused


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What was counted at `at`, by backend; None is those that are deleted by now."""

    at: datetime
    backends: dict[str | None, Counted] = field(default_factory=dict)

    @property
    def total(self) -> Counted:
        return sum(self.backends.values(), Counted())


@transaction.atomic
def take_sample(*, now: datetime | None = None) -> bool:
    """Count all sessions now. False, with nothing done, if somebody did so in these five minutes."""
    at = slot(now or timezone.now())
    _, is_ours = Sampling.objects.get_or_create(at=at)
    if not is_ours:
        return False
    counts = {state.value: Count("pk", filter=Q(state=state)) for state in COUNTED}
    rows = (
        # Named space by space, the index finds them among all that are over.
        Session.objects.filter(space__in=Space.objects.all(), state__in=COUNTED)
        .order_by()
        .values("space_id", "backend_id")
        .annotate(**counts)
    )
    SessionSample.objects.bulk_create(
        (SessionSample(sampling_id=at, **row) for row in rows), batch_size=_AT_ONCE
    )
    return True


def thin_samples(*, now: datetime | None = None) -> int:
    """Keep the first moment of each hour after two days, and none after 90. Returns how many moments went.
    Idempotent."""
    now = now or timezone.now()
    gone, hour = [], None
    for at in Sampling.objects.filter(at__lt=now - _KEEP_ALL).values_list("at", flat=True):
        this_hour = at.replace(minute=0, second=0, microsecond=0)
        if at < now - _KEEP or this_hour == hour:
            gone.append(at)
        hour = this_hour
    for start in range(0, len(gone), _AT_ONCE):
        with transaction.atomic():
            batch = gone[start : start + _AT_ONCE]
            SessionSample.objects.filter(sampling__in=batch).delete()
            Sampling.objects.filter(pk__in=batch).delete()
    return len(gone)


def over_time(
    *, spaces: QuerySet[Space], since: datetime, step: timedelta, until: datetime | None = None
) -> list[Moment]:
    """One moment for each `step` from `since` on in which there was a count, in order. Two queries."""
    until = until or timezone.now()
    chosen = _one_a_step(
        Sampling.objects.filter(at__gte=since, at__lte=until).values_list("at", flat=True),
        since,
        step,
    )
    moments = {at: Moment(at=at) for at in chosen}
    rows = (
        SessionSample.objects.filter(sampling__in=chosen, space__in=spaces)
        .order_by()
        .values("backend_id", at=F("sampling_id"))
        .annotate(active=Sum("active"), paused=Sum("paused"), lost=Sum("lost"))
    )
    for row in rows:
        moments[row["at"]].backends[row["backend_id"]] = Counted(
            active=row["active"], paused=row["paused"], lost=row["lost"]
        )
    return list(moments.values())


def _one_a_step(
    found: QuerySet[Sampling, datetime], since: datetime, step: timedelta
) -> Sequence[datetime]:
    chosen: dict[int, datetime] = {}
    for at in found:
        chosen.setdefault((at - since) // step, at)
    return list(chosen.values())


def slot(now: datetime) -> datetime:
    """The moment at which the sessions of now are counted."""
    seconds = EVERY.total_seconds()
    return datetime.fromtimestamp(now.timestamp() // seconds * seconds, UTC)
