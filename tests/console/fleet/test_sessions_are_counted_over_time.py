"""Counts of sessions: one a moment however many beats run, told by space, thinned and forgotten with age."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from console.fleet import samples, tasks
from console.fleet.models import Backend, Sampling, Session, SessionSample, SessionState
from console.tenants.models import Space
from tests.console.cast import World

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
EVERYWHERE = Space.objects.all


def at(hours: float) -> datetime:
    return NOON + timedelta(hours=hours)


def seen(world: World, when: datetime, **counts: int) -> Sampling:
    sampling, _ = Sampling.objects.get_or_create(at=when)
    SessionSample.objects.create(
        sampling=sampling, space=world.space, backend=world.backend, **counts
    )
    return sampling


def test_sessions_are_counted_by_space_backend_and_state(world: World, other_world: World) -> None:
    more = {"space": world.space, "backend": world.backend}
    Session.objects.create(session_id="p", state=SessionState.PAUSED, **more)
    Session.objects.create(session_id="l", state=SessionState.LOST, **more)
    Session.objects.create(session_id="d", state=SessionState.DESTROYED, **more)
    elsewhere = Backend.objects.create(tenant=world.tenant, name="There", provider="local")
    Session.objects.create(session_id="o", space=world.space, backend=elsewhere)

    assert samples.take_sample(now=NOON + timedelta(minutes=3, seconds=7))

    assert list(Sampling.objects.values_list("at", flat=True)) == [NOON]
    rows = SessionSample.objects.values_list("space", "backend", "active", "paused", "lost")
    assert set(rows) == {
        (world.space.pk, world.backend.pk, 1, 1, 1),
        (world.space.pk, elsewhere.pk, 1, 0, 0),
        (other_world.space.pk, other_world.backend.pk, 1, 0, 0),
    }


def test_of_several_beats_one_counts(world: World) -> None:
    assert samples.take_sample(now=NOON)
    assert not samples.take_sample(now=NOON + timedelta(minutes=4))
    assert samples.take_sample(now=NOON + timedelta(minutes=5))

    assert SessionSample.objects.count() == Sampling.objects.count() == 2


def test_the_database_itself_refuses_a_second_count(world: World) -> None:
    samples.take_sample(now=NOON)

    with pytest.raises(IntegrityError), transaction.atomic():
        seen(world, NOON, active=1)


def test_a_count_that_breaks_off_leaves_the_moment_free(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: Any, **_options: Any) -> None:
        raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr(SessionSample.objects, "bulk_create", broken)
        with pytest.raises(RuntimeError):
            samples.take_sample(now=NOON)

    assert samples.take_sample(now=NOON)


def test_counting_is_a_fixed_number_of_queries(
    world: World, django_assert_max_num_queries: Any
) -> None:
    Session.objects.bulk_create(
        Session(space=world.space, backend=world.backend, session_id=f"s-{n}") for n in range(300)
    )
    with django_assert_max_num_queries(8):  # four of them open and close savepoints
        samples.take_sample(now=NOON)


def test_a_space_is_told_its_own_and_an_empty_moment_is_a_moment(
    world: World, other_world: World
) -> None:
    seen(world, at(-2), active=3, paused=1)
    seen(other_world, at(-2), active=50)
    seen(other_world, at(-1), active=60)

    found = samples.over_time(
        spaces=Space.objects.filter(pk=world.space.pk),
        since=at(-24),
        step=timedelta(minutes=15),
        until=NOON,
    )

    assert [(moment.at, moment.total.live) for moment in found] == [(at(-2), 4), (at(-1), 0)]
    both = samples.over_time(
        spaces=EVERYWHERE(), since=at(-24), step=timedelta(minutes=15), until=NOON
    )
    assert both[0].backends.keys() == {world.backend.pk, other_world.backend.pk}
    assert both[0].total.active == 53


def test_each_step_has_one_moment_and_a_gap_stays_a_gap(world: World) -> None:
    for minutes in (0, 5, 10, 15, 60):
        seen(world, NOON + timedelta(minutes=minutes), active=minutes)

    found = samples.over_time(
        spaces=EVERYWHERE(), since=NOON, step=timedelta(minutes=15), until=at(2)
    )

    assert [moment.total.active for moment in found] == [0, 15, 60]


def test_what_a_deleted_backend_ran_is_still_told(world: World) -> None:
    gone = Backend.objects.create(tenant=world.tenant, name="Gone", provider="local")
    sampling = Sampling.objects.create(at=NOON)
    SessionSample.objects.create(sampling=sampling, space=world.space, backend=gone, active=4)
    gone.delete()

    (moment,) = samples.over_time(
        spaces=EVERYWHERE(), since=at(-1), step=timedelta(minutes=15), until=at(1)
    )

    assert moment.backends == {None: samples.Counted(active=4)}


def test_after_two_days_one_moment_an_hour_is_kept_and_after_ninety_days_none(
    world: World,
) -> None:
    fresh = [at(-1) + timedelta(minutes=5 * n) for n in range(12)]
    old = [at(-72) + timedelta(minutes=10 + 5 * n) for n in range(12)]
    ancient = [at(-24 * 91), at(-24 * 90 - 1)]
    for when in fresh + old + ancient:
        seen(world, when, active=1)

    assert samples.thin_samples(now=NOON) == 12

    kept = set(Sampling.objects.values_list("at", flat=True))
    assert kept == {*fresh, at(-72) + timedelta(minutes=10), at(-71)}
    assert set(SessionSample.objects.values_list("sampling_id", flat=True)) == kept
    assert samples.thin_samples(now=NOON) == 0


def test_the_beat_counts_and_the_hourly_sweep_thins(world: World, settings: Any) -> None:
    seen(world, at(-24 * 400), active=1)
    tasks.sample_sessions.run()
    tasks.sweep_fleet.run()

    (left,) = Sampling.objects.all()
    assert left.samples.get().active == 1
    named = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    assert {tasks.sample_sessions.name, tasks.sweep_fleet.name} <= named
