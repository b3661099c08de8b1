"""The charts of the overviews: which numbers they show, in which words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.fleet.samples import Counted, Moment, over_time
from console.fleet.standing import BackendStanding
from console.tenants.models import Space
from console.web.charts import Chart, Series, areas, bars, line
from console.web.templatetags.skillyard import seconds
from skills.services import BuildFigures

__all__ = ["PERIODS", "Period", "builds_charts", "period_of", "sessions_charts"]

_MOST_BACKENDS = 5
"""More than these are told together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """`key` is what the address says; one point of a chart stands for `step`."""

    key: str
    label: Promise
    words: Promise
    days: int
    step: timedelta
    unit: str


PERIODS = {
    period.key: period
    for period in (
        Period(
            key="24h",
            label=gettext_lazy("24 hours"),
            words=gettext_lazy("in the last 24 hours"),
            days=1,
            step=timedelta(minutes=15),
            unit="time",
        ),
        Period(
            key="7d",
            label=gettext_lazy("7 days"),
            words=gettext_lazy("in the last 7 days"),
            days=7,
            step=timedelta(hours=2),
            unit="moment",
        ),
        Period(
            key="30d",
            label=gettext_lazy("30 days"),
            words=gettext_lazy("in the last 30 days"),
            days=30,
            step=timedelta(hours=6),
            unit="moment",
        ),
    )
}


def period_of(key: str) -> Period:
    """The first one for an unknown key."""
    return PERIODS.get(key) or PERIODS["24h"]


def sessions_charts(
    *,
    spaces: QuerySet[Space],
    backends: Sequence[BackendStanding],
    sessions: Counted,
    period: Period,
    now: datetime,
) -> list[Chart]:
    """By state and, where there are several, by backend. The last point is the present. None while nothing was
    counted yet."""
    since = now - timedelta(days=period.days)
    moments = over_time(spaces=spaces, since=since, step=period.step, until=now)
    if not moments:
        return []
    present: dict[str | None, Counted] = {
        standing.backend.pk: standing.sessions for standing in backends if standing.sessions.live
    }
    moments = [*moments, Moment(at=now, backends=present)]
    charts = [_by_state(moments, sessions, since, period)]
    if len(backends) > 1:
        charts.append(_by_backend(moments, backends, since, period))
    return charts


def _by_state(
    moments: Sequence[Moment], sessions: Counted, since: datetime, period: Period
) -> Chart:
    totals = [moment.total for moment in moments[:-1]] + [sessions]
    most = max(total.live for total in totals)
    return areas(
        id="sessions-by-state",
        title=_("Sessions by state"),
        summary=_(
            "Sessions with a sandbox %(when)s: %(running)d run and %(paused)d are paused now; %(most)d at "
            "most."
        )
        % {
            "when": period.words,
            "running": sessions.active,
            "paused": sessions.paused,
            "most": most,
        },
        moments=[moment.at for moment in moments],
        series=[
            Series(
                label=_("Running"),
                look="series-running",
                values=[total.active for total in totals],
            ),
            Series(
                label=_("Paused"), look="series-paused", values=[total.paused for total in totals]
            ),
        ],
        extra=[(_("Lost"), [total.lost for total in totals])],
        since=since,
        until=moments[-1].at,
        step_s=period.step.total_seconds(),
        unit=period.unit,
    )


def _by_backend(
    moments: Sequence[Moment],
    backends: Sequence[BackendStanding],
    since: datetime,
    period: Period,
) -> Chart:
    """The busiest ones apart, the rest and those that are deleted together."""
    weight = {
        standing.backend.pk: sum(
            moment.backends.get(standing.backend.pk, Counted()).live for moment in moments
        )
        for standing in backends
    }
    ranked = sorted(backends, key=lambda s: (-weight[s.backend.pk], s.backend.name))
    shown = ranked[:_MOST_BACKENDS]
    names = {standing.backend.pk for standing in shown}
    series = [
        Series(
            label=standing.backend.name,
            look=f"series-{n}",
            values=[moment.backends.get(standing.backend.pk, Counted()).live for moment in moments],
        )
        for n, standing in enumerate(shown)
    ]
    others = [
        sum(counted.live for pk, counted in moment.backends.items() if pk not in names)
        for moment in moments
    ]
    if any(others):
        series.append(Series(label=_("Others"), look=f"series-{_MOST_BACKENDS}", values=others))
    return areas(
        id="sessions-by-backend",
        title=_("Sessions by backend"),
        summary=_("Sessions with a sandbox on each of %(count)d backends %(when)s.")
        % {"count": len(series), "when": period.words},
        moments=[moment.at for moment in moments],
        series=series,
        since=since,
        until=moments[-1].at,
        step_s=period.step.total_seconds(),
        unit=period.unit,
    )


def builds_charts(figures: BuildFigures, period: Period, now: datetime) -> list[Chart]:
    """How many ended how, and below it the share that succeeded. None if none ended."""
    whole = figures.whole
    if not whole.judged and not whole.cancelled:
        return []
    periods = figures.periods
    unit = "time" if period.days == 1 else "day"
    length = timedelta(hours=1) if period.days == 1 else timedelta(days=1)
    moments = [one.at for one in periods]
    since, until = periods[0].at, periods[-1].at + length
    series = [
        Series(
            label=_("Succeeded"),
            look="series-good",
            values=[one.succeeded for one in periods],
        ),
        Series(label=_("Failed"), look="series-bad", values=[one.failed for one in periods]),
    ]
    if whole.cancelled:
        cancelled = [one.cancelled for one in periods]
        series.append(Series(label=_("Cancelled"), look="series-idle", values=cancelled))
    rates = [one.rate for one in periods]
    charts = [
        bars(
            id="builds-over-time",
            title=_("Builds that ended"),
            summary=_("Builds %(when)s: %(good)d succeeded, %(bad)d failed.")
            % {"when": period.words, "good": whole.succeeded, "bad": whole.failed},
            moments=moments,
            series=series,
            # Whole hours are not the last 24 of them, which are told beside it.
            has_totals=period.days > 1,
            extra=[
                (_("Success rate"), ["—" if rate is None else percent(rate) for rate in rates]),
                (
                    _("Took on average"),
                    ["—" if one.took_s is None else seconds(one.took_s) for one in periods],
                ),
            ],
            since=since,
            until=until,
            unit=unit,
        )
    ]
    if whole.rate is not None:
        charts.append(
            line(
                id="builds-rate",
                title=_("Success rate"),
                summary=_("Of the builds %(when)s, %(rate)s succeeded.")
                % {"when": period.words, "rate": percent(whole.rate)},
                moments=moments,
                series=Series(label=_("over all"), look="series-rate", values=rates),
                latest=percent(whole.rate),
                since=since,
                until=until,
                unit=unit,
                most=1.0,
                shown=percent,
            )
        )
    return charts


def percent(share: float) -> str:
    return _("%(number)d %%") % {"number": round(share * 100)}
