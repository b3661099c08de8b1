"""Charts as inline SVG: what they show is laid out here, `templates/components/chart.html` draws it.

Lengths are percent of the drawing, so that it stretches to its place while its words keep their size. Colours
are classes of the style sheet, told apart by the pattern of their line as well; every chart has its numbers
in a table. Pure: nothing here asks the database.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.formats import date_format, number_format
from django.utils.translation import pgettext

__all__ = ["Chart", "Series", "areas", "bars", "line"]

GRID_LINES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One thing that is counted; `values` has one for each moment, None where nobody counted. `look` is a class
    of the style sheet (`series-…`)."""

    label: str
    look: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is drawn of one series: its areas and lines, one for each stretch without a gap."""

    label: str
    look: str
    areas: list[str]
    lines: list[str]
    latest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    look: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A grid line across at `y`, or one down at `x` with its moment below it, set by `anchor`."""

    label: str
    x: float = 0.0
    y: float = 0.0
    anchor: str = "middle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The strip of one moment: pointing at it tells its numbers. `cells` are those numbers, in the order of the
    series, for the table."""

    iso: str
    told: str
    """In the present time zone, which is the reader's."""
    x: float
    width: float
    cells: list[str]
    lines: list[str]


@dataclass(slots=True, kw_only=True)
class Chart:
    """`unit` says how its moments are told: as a `time` of day, as a `moment` of a day, or as a `day`. `summary`
    is what it shows, in a sentence."""

    id: str
    title: str
    summary: str
    unit: str
    shapes: list[Shape] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    grid: list[Tick] = field(default_factory=list)
    ticks: list[Tick] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    """Of the table's columns."""
    is_small: bool = False


def areas(
    *,
    id: str,
    title: str,
    summary: str,
    moments: Sequence[datetime],
    series: Sequence[Series],
    since: datetime,
    until: datetime,
    step_s: float,
    unit: str,
    extra: Sequence[tuple[str, Sequence[float | str | None]]] = (),
) -> Chart:
    """Series stacked on each other, the first at the bottom. Where two moments lie more than two and a half
    steps apart, nobody counted, and nothing is drawn. `extra` are columns of the table only."""
    tops = [sum(one.values[n] or 0 for one in series) for n in range(len(moments))]
    scale = _nice(max(tops, default=0))
    xs = [_x(at, since, until) for at in moments]
    stretches = _stretches(moments, step_s)
    chart = _empty(id, title, summary, unit, scale, since, until)
    below = [0.0] * len(moments)
    for one in series:
        above = [low + (value or 0) for low, value in zip(below, one.values, strict=True)]
        upper = [_y(value, scale) for value in above]
        lower = [_y(value, scale) for value in below]
        chart.shapes.append(
            Shape(
                label=one.label,
                look=one.look,
                areas=[_area(xs, upper, lower, part) for part in stretches],
                lines=[_path(xs, upper, part) for part in stretches],
                latest=_number(one.values[-1]) if moments else "",
            )
        )
        below = above
    _tell(
        chart, moments, series, extra, _strips(xs, 100 * step_s / (until - since).total_seconds())
    )
    return chart


def line(
    *,
    id: str,
    title: str,
    summary: str,
    moments: Sequence[datetime],
    series: Series,
    since: datetime,
    until: datetime,
    unit: str,
    most: float,
    shown: Callable[[float], str],
    latest: str,
) -> Chart:
    """One series on a scale from 0 to `most`, without a table of its own; `latest` is the number beside its name.
    Moments without a value are bridged."""
    chart = _empty(id, title, summary, unit, (most, 1), since, until, shown)
    chart.is_small = True
    middle = (until - since) / max(len(moments), 1) / 2
    points = [
        (_x(at + middle, since, until), _y(value, (most, 1)))
        for at, value in zip(moments, series.values, strict=True)
        if value is not None
    ]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    chart.shapes.append(
        Shape(
            label=series.label,
            look=series.look,
            areas=[],
            lines=[_path(xs, ys, range(len(xs)))] if points else [],
            latest=latest,
        )
    )
    chart.bars = [
        Bar(look=series.look, x=round(x - 0.4, 2), y=round(y - 5, 2), width=0.8, height=10)
        for x, y in points
    ]
    return chart


def bars(
    *,
    id: str,
    title: str,
    summary: str,
    moments: Sequence[datetime],
    series: Sequence[Series],
    since: datetime,
    until: datetime,
    unit: str,
    has_totals: bool,
    extra: Sequence[tuple[str, Sequence[float | str | None]]] = (),
) -> Chart:
    """Series stacked into one bar for each moment, which stands for the time until the next. `has_totals` adds
    them up beside their names."""
    tops = [sum(one.values[n] or 0 for one in series) for n in range(len(moments))]
    scale = _nice(max([*tops, GRID_LINES]))
    chart = _empty(id, title, summary, unit, scale, since, until)
    width = 100 / max(len(moments), 1)
    xs = [width * n for n in range(len(moments))]
    chart.ticks = [
        _tick(at, unit, round(x + width / 2, 2))
        for n, (at, x) in enumerate(zip(moments, xs, strict=True))
        if (timezone.localtime(at).hour % 6 == 0 if unit == "time" else n % _one_in(moments) == 0)
    ]
    below = [0.0] * len(moments)
    for one in series:
        for n, value in enumerate(one.values):
            if value:
                top = _y(below[n] + value, scale)
                chart.bars.append(
                    Bar(
                        look=one.look,
                        x=round(xs[n] + width * 0.15, 2),
                        y=top,
                        width=round(width * 0.7, 2),
                        height=round(_y(below[n], scale) - top, 2),
                    )
                )
                below[n] += value
        total = _number(sum(value or 0 for value in one.values)) if has_totals else ""
        chart.shapes.append(Shape(label=one.label, look=one.look, areas=[], lines=[], latest=total))
    _tell(chart, moments, series, extra, [(x, x + width) for x in xs])
    return chart


def _one_in(moments: Sequence[datetime]) -> int:
    """So that five labels at most stand below the bars."""
    return max(1, math.ceil(len(moments) / 5))


def _empty(
    id: str,
    title: str,
    summary: str,
    unit: str,
    scale: tuple[float, float],
    since: datetime,
    until: datetime,
    shown: Callable[[float], str] | None = None,
) -> Chart:
    most, step = scale
    count = round(most / step)
    return Chart(
        id=id,
        title=title,
        summary=summary,
        unit=unit,
        grid=[
            Tick(label=(shown or _number)(step * n), y=_y(step * n, scale))
            for n in range(count + 1)
        ],
        ticks=_ticks(since, until, unit),
    )


def _tell(
    chart: Chart,
    moments: Sequence[datetime],
    series: Sequence[Series],
    extra: Sequence[tuple[str, Sequence[float | str | None]]],
    strips: Sequence[tuple[float, float]],
) -> None:
    """The strips to point at, which are the rows of the table too."""
    chart.heads = [one.label for one in series] + [label for label, _ in extra]
    for n, (at, (left, right)) in enumerate(zip(moments, strips, strict=True)):
        cells = [_number(one.values[n]) for one in series]
        cells += [_number(values[n]) for _, values in extra]
        chart.columns.append(
            Column(
                iso=at.isoformat(),
                told=_told(at, chart.unit),
                x=round(left, 2),
                width=round(right - left, 2),
                cells=cells,
                lines=[f"{head}: {cell}" for head, cell in zip(chart.heads, cells, strict=True)],
            )
        )


def _strips(xs: Sequence[float], step: float) -> list[tuple[float, float]]:
    """Half way to each neighbour, and at most half a step."""
    found = []
    for n, x in enumerate(xs):
        left = max((xs[n - 1] + x) / 2 if n else 0.0, x - step / 2)
        right = min((x + xs[n + 1]) / 2 if n + 1 < len(xs) else 100.0, x + step / 2)
        found.append((left, right))
    return found


def _x(at: datetime, since: datetime, until: datetime) -> float:
    return round(100 * ((at - since) / (until - since)), 2)


def _y(value: float, scale: tuple[float, float]) -> float:
    return round(100 - 100 * value / scale[0], 2)


def _nice(most: float) -> tuple[float, float]:
    """The top of a scale of whole numbers and the step of its grid."""
    rough = max(most, 1) / GRID_LINES
    power = 10 ** math.floor(math.log10(rough)) if rough > 1 else 1
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return step * math.ceil(max(most, 1) / step), step


def _ticks(since: datetime, until: datetime, unit: str) -> list[Tick]:
    """Every six hours of one day, or five midnights at most."""
    local = timezone.localtime(since).replace(minute=0, second=0, microsecond=0)
    if unit == "time":
        at, step = local.replace(hour=0), timedelta(hours=6)
    else:
        days = (until - since).total_seconds() / 86400
        at, step = local.replace(hour=0), timedelta(days=math.ceil(days / 5))
    found = []
    while at <= until:
        if at >= since:
            found.append(_tick(at, "time" if unit == "time" else "day", _x(at, since, until)))
        at += step
    return found


def _tick(at: datetime, unit: str, x: float) -> Tick:
    """Its words stay within the chart."""
    return Tick(
        label=_told(at, unit), x=x, anchor="start" if x < 5 else "end" if x > 95 else "middle"
    )


def _told(at: datetime, unit: str) -> str:
    local = timezone.localtime(at)
    day = date_format(local, pgettext("a day of a month, as a format of dates", "M j"))
    clock = local.strftime("%H:%M")
    return {"time": clock, "day": day, "moment": f"{day} {clock}"}[unit]


def _stretches(moments: Sequence[datetime], step_s: float) -> list[range]:
    found, start = [], 0
    for n in range(1, len(moments) + 1):
        if n == len(moments) or (moments[n] - moments[n - 1]).total_seconds() > 2.5 * step_s:
            found.append(range(start, n))
            start = n
    return found


def _path(xs: Sequence[float], ys: Sequence[float], part: range) -> str:
    return "M" + "L".join(f"{xs[n]:g} {ys[n]:g}" for n in part)


def _area(xs: Sequence[float], upper: Sequence[float], lower: Sequence[float], part: range) -> str:
    back = "L".join(f"{xs[n]:g} {lower[n]:g}" for n in reversed(part))
    return f"{_path(xs, upper, part)}L{back}Z"


def _number(value: float | str | None) -> str:
    """As the reader's language writes it."""
    if value is None:
        return "—"
    if isinstance(value, str):
        return value
    return str(number_format(round(value), use_l10n=True, force_grouping=True))
