"""How builds went: by hour or day, and over the last 24 hours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Avg, Count, F, Q
from django.db.models.functions import TruncDay, TruncHour
from django.utils import timezone

from skills.models import Build, BuildState

__all__ = ["BuildFigures", "BuildPeriod", "build_figures"]

_DAY = timedelta(days=1)


@dataclass(slots=True, kw_only=True)
class BuildPeriod:
    """Builds that ended in it. `took_s` is the mean of those that succeeded."""

    at: datetime
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    took_s: float | None = None

    @property
    def judged(self) -> int:
        return self.succeeded + self.failed

    @property
    def rate(self) -> float | None:
        """The share that succeeded, 0 to 1, of those that were not cancelled; None if there was none."""
        return self.succeeded / self.judged if self.judged else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFigures:
    periods: list[BuildPeriod]
    day: BuildPeriod
    """The last 24 hours."""

    @property
    def whole(self) -> BuildPeriod:
        """All periods together, without how long they took."""
        return BuildPeriod(
            at=self.periods[0].at,
            succeeded=sum(period.succeeded for period in self.periods),
            failed=sum(period.failed for period in self.periods),
            cancelled=sum(period.cancelled for period in self.periods),
        )


def build_figures(*, spaces: Any, days: int, now: datetime | None = None) -> BuildFigures:
    """The builds of `spaces` (a queryset): by hour for one day, else by day, which begins at midnight in the
    present time zone. One query."""
    now = now or timezone.now()
    zone = UTC if days == 1 else timezone.get_current_timezone()
    starts = list(_starts(now.astimezone(zone), days))
    truncated = (TruncHour if days == 1 else TruncDay)("finished_at", tzinfo=zone)
    recent = Q(finished_at__gte=now - _DAY)
    took = F("finished_at") - F("started_at")
    rows = (
        Build.objects.filter(space__in=spaces, finished_at__gte=min(starts[0], now - _DAY))
        .order_by()
        .values("state", start=truncated)
        .annotate(
            count=Count("pk"),
            recent=Count("pk", filter=recent),
            took=Avg(took),
            recent_took=Avg(took, filter=recent),
        )
    )
    periods = {start: BuildPeriod(at=start) for start in starts}
    day, day_took = BuildPeriod(at=now - _DAY), timedelta()
    for row in rows:
        if period := periods.get(row["start"]):
            _add(period, row["state"], row["count"])
            if row["state"] == BuildState.SUCCEEDED and row["took"] is not None:
                period.took_s = row["took"].total_seconds()
        _add(day, row["state"], row["recent"])
        if row["state"] == BuildState.SUCCEEDED and row["recent_took"] is not None:
            day_took += row["recent_took"] * row["recent"]
    if day.succeeded:
        day.took_s = day_took.total_seconds() / day.succeeded
    return BuildFigures(periods=list(periods.values()), day=day)


def _starts(now: datetime, days: int) -> Iterator[datetime]:
    if days == 1:
        hour = now.replace(minute=0, second=0, microsecond=0)
        yield from (hour - timedelta(hours=back) for back in reversed(range(24)))
        return
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    yield from (midnight - timedelta(days=back) for back in reversed(range(days)))


def _add(period: BuildPeriod, state: str, count: int) -> None:
    if state in (BuildState.SUCCEEDED, BuildState.FAILED, BuildState.CANCELLED):
        setattr(period, state, getattr(period, state) + count)
