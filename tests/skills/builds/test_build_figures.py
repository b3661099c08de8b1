"""How builds went: by hour or day in the reader's zone, over 24 hours, of the spaces that were asked for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from console.tenants.models import Space
from skills.models import Build
from skills.services import build_figures
from tests.skills.world import make_space

NOW = datetime(2026, 11, 30, 12, 30, tzinfo=UTC)
ALL = Space.objects.all


def ended(space: Space, hours_ago: float, state: str = "succeeded", took_s: float = 60) -> None:
    end = NOW - timedelta(hours=hours_ago)
    Build.objects.create(
        space=space, state=state, started_at=end - timedelta(seconds=took_s), finished_at=end
    )


@pytest.fixture
def space(db: None) -> Space:
    return make_space()


def test_a_day_is_told_by_hour(space: Space) -> None:
    ended(space, 0.25)
    ended(space, 0.4, "failed")
    ended(space, 3, took_s=120)
    ended(space, 23.9, "cancelled")
    ended(space, 24.1, "failed")

    figures = build_figures(spaces=ALL(), days=1, now=NOW)

    assert len(figures.periods) == 24
    last = figures.periods[-1]
    assert (last.at, last.succeeded, last.failed, last.rate) == (
        datetime(2026, 11, 30, 12, tzinfo=UTC),
        1,
        1,
        0.5,
    )
    day = figures.day
    assert (day.succeeded, day.failed, day.cancelled, day.took_s) == (2, 1, 1, 90)


def test_a_week_is_told_by_the_readers_days(space: Space) -> None:
    ended(space, 13)  # 23:30 in London, 07:30 of the next day in Shanghai
    with timezone.override(ZoneInfo("Asia/Shanghai")):
        figures = build_figures(spaces=ALL(), days=7, now=NOW)
        assert [period.succeeded for period in figures.periods] == [0, 0, 0, 0, 0, 0, 1]
    figures = build_figures(spaces=ALL(), days=7, now=NOW)
    assert [period.succeeded for period in figures.periods] == [0, 0, 0, 0, 0, 1, 0]
    assert figures.whole.succeeded == 1


def test_only_the_spaces_asked_for_count_and_one_query_is_made(
    space: Space, django_assert_num_queries: Any
) -> None:
    other = make_space()
    ended(other, 1, "failed")
    ended(space, 1)

    with django_assert_num_queries(1):
        figures = build_figures(spaces=Space.objects.filter(pk=space.pk), days=30, now=NOW)

    assert (figures.whole.succeeded, figures.whole.failed, len(figures.periods)) == (1, 0, 30)


def test_no_builds_make_no_rate(space: Space) -> None:
    figures = build_figures(spaces=ALL(), days=30, now=NOW)

    assert figures.whole.rate is None
    assert figures.day.took_s is None
