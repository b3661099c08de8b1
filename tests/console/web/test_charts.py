"""Charts are laid out in percent, tell gaps as gaps, and hold their numbers for the table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.utils import translation

from console.web.charts import Chart, Series, areas, bars, line

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
STEP = timedelta(minutes=15)
DAY = {"since": NOON - timedelta(days=1), "until": NOON, "unit": "time"}
WORDS = {"id": "c", "title": "T & U", "summary": "What it shows."}


def stacked(moments: list[datetime], *values: list[float | None]) -> Chart:
    series = [
        Series(label=f"S{n}", look=f"series-{n}", values=numbers)
        for n, numbers in enumerate(values)
    ]
    return areas(**WORDS, **DAY, moments=moments, series=series, step_s=STEP.total_seconds())


def test_areas_are_stacked_on_a_scale_of_round_numbers() -> None:
    chart = stacked([NOON - STEP, NOON], [10, 20], [30, 60])

    assert [(tick.label, tick.y) for tick in chart.grid] == [("0", 100), ("50", 50), ("100", 0)]
    below, above = chart.shapes
    assert below.lines == ["M98.96 90L100 80"]
    assert above.lines == ["M98.96 60L100 20"]
    assert above.areas == ["M98.96 60L100 20L100 80L98.96 90Z"]
    assert (below.latest, above.latest) == ("20", "60")


def test_where_nobody_counted_nothing_is_drawn() -> None:
    chart = stacked([NOON - 8 * STEP, NOON - 7 * STEP, NOON - STEP, NOON], [1, 1, 1, 1])

    assert len(chart.shapes[0].lines) == 2
    widths = [column.width for column in chart.columns]
    assert max(widths) <= 1.05, "nor to be pointed at"


def test_a_single_moment_and_none_at_all_are_drawn() -> None:
    assert stacked([NOON], [6]).shapes[0].lines == ["M100 0"]
    empty = stacked([], [])
    assert empty.columns == []
    assert [tick.label for tick in empty.grid] == ["0", "1"]


@pytest.mark.parametrize(
    ("most", "top"), [(1, "1"), (3, "3"), (4, "4"), (7, "10"), (95, "100"), (12_001, "15,000")]
)
def test_the_top_of_the_scale_is_above_the_most(most: int, top: str) -> None:
    chart = stacked([NOON], [most])

    assert chart.grid[-1].label == top
    assert all(0 <= float(tick.y) <= 100 for tick in chart.grid)
    assert 2 <= len(chart.grid) <= 5


def test_bars_stand_on_each_other_and_have_totals() -> None:
    chart = bars(
        **WORDS,
        **DAY,
        moments=[NOON - timedelta(days=1), NOON - timedelta(hours=12)],
        series=[
            Series(label="Good", look="series-good", values=[3, 0]),
            Series(label="Bad", look="series-bad", values=[1, 0]),
        ],
        has_totals=True,
        extra=[("Rate", ["75 %", "—"])],
    )

    good, bad = chart.bars
    assert (good.y, good.height) == (25, 75)
    assert (bad.y, bad.height) == (0, 25)
    assert chart.columns[0].cells == ["3", "1", "75 %"]
    assert [shape.latest for shape in chart.shapes] == ["3", "1"]


def test_a_rate_bridges_moments_without_one() -> None:
    values: list[float | None] = [1.0, None, 0.5]
    chart = line(
        **WORDS,
        **DAY,
        moments=[NOON - timedelta(hours=hours) for hours in (24, 16, 8)],
        series=Series(label="over all", look="series-rate", values=values),
        most=1.0,
        shown=lambda share: f"{share:.0%}",
        latest="75%",
    )

    assert chart.shapes[0].lines == ["M16.67 0L83.33 50"]
    assert [tick.label for tick in chart.grid] == ["0%", "100%"]
    assert len(chart.bars) == 2


def drawn(chart: Chart, language: str = "en") -> str:
    with translation.override(language):
        return render_to_string("components/chart.html", {"chart": chart})


def test_it_is_drawn_with_its_words_and_its_table() -> None:
    text = drawn(stacked([NOON - STEP, NOON], [1200, 2400]))

    assert 'role="img" aria-labelledby="c-title c-desc"' in text
    assert '<title id="c-title">T &amp; U</title>' in text
    assert '<desc id="c-desc">What it shows.</desc>' in text
    assert "S0: 2,400" in text
    assert '<td class="num">2,400</td>' in text
    assert " style=" not in text
    assert "<style" not in text


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_its_geometry_is_the_same_in_every_language(language: str) -> None:
    chart = stacked([NOON - STEP, NOON], [1, 2])

    assert 'd="M98.96 50L100 0"' in drawn(chart, language)


def test_names_are_escaped() -> None:
    evil: Any = Series(label="<b>", look="series-0", values=[1])
    chart = areas(**WORDS, **DAY, moments=[NOON], series=[evil], step_s=900)

    assert "<b>" not in drawn(chart)
