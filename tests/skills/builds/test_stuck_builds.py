"""Builds that nobody works on: named with what will happen, taken up or cancelled without waiting for the sweep."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.audit.models import AuditEntry
from console.tenants.models import Space
from sandboxes.errors import Conflict
from skills import services
from skills.build.settings import MAX_ATTEMPTS
from skills.models import Build, BuildState
from tests.skills.world import ACTOR, add_skill, run

Waiting = list[tuple[str, str]]


@pytest.fixture
def build(space: Space) -> Build:
    return services.install(space=space, version=add_skill(space, "one"), actor=ACTOR)


def silent(build: Build, seconds: float, **changes: Any) -> Build:
    """Running, its worker not heard of for that long."""
    then = timezone.now() - timedelta(seconds=seconds)
    values = {"state": BuildState.RUNNING, "attempt": 1, "heartbeat_at": then, **changes}
    Build.objects.filter(pk=build.pk).update(**values)
    return Build.objects.get(pk=build.pk)


def waiting(build: Build, seconds: float) -> Build:
    Build.objects.filter(pk=build.pk).update(
        created_at=timezone.now() - timedelta(seconds=seconds), heartbeat_at=timezone.now()
    )
    return Build.objects.get(pk=build.pk)


def test_a_worker_that_was_heard_of_lately_has_no_stuck_build(build: Build) -> None:
    assert services.stuck(silent(build, 25)) is None
    assert services.stuck(silent(build, 500, state=BuildState.FAILED)) is None


def test_a_silent_worker_s_build_is_stuck_and_the_sweep_s_time_is_told(build: Build) -> None:
    early = services.stuck(silent(build, 40))
    assert early is not None
    assert early.is_claimed
    assert 45 < early.swept_in_s <= 50
    assert 15 < early.held_s <= 20
    late = services.stuck(silent(build, 300))
    assert late is not None
    assert (late.swept_in_s, late.held_s, late.is_last_attempt) == (0, 0, False)
    last = services.stuck(silent(build, 300, attempt=MAX_ATTEMPTS))
    assert last is not None
    assert last.is_last_attempt


def test_a_queued_build_is_stuck_when_it_is_next_and_nobody_came(
    build: Build, space: Space
) -> None:
    second = services.install(space=space, version=add_skill(space, "two"), actor=ACTOR)
    assert services.stuck(waiting(build, 60)) is None
    found = services.stuck(waiting(build, 400))
    assert found is not None
    assert not found.is_claimed
    assert services.stuck(waiting(second, 400)) is None, "it waits for the first one"


def test_a_queued_build_whose_turn_has_just_come_is_not_stuck(build: Build, space: Space) -> None:
    before = Build.objects.create(
        space_id=space.pk, state=BuildState.SUCCEEDED, finished_at=timezone.now()
    )
    assert services.stuck(waiting(build, 400)) is None
    Build.objects.filter(pk=before.pk).update(finished_at=timezone.now() - timedelta(seconds=200))
    found = services.stuck(waiting(build, 400))
    assert found is not None
    assert 199 < found.silent_s < 300


def test_taking_one_up_hands_it_to_a_worker_and_is_audited(
    build: Build,
    handed_on: Waiting,
    django_capture_on_commit_callbacks: Any,
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        services.take_up(build=silent(build, 70), actor=ACTOR)

    assert handed_on == [("run_build", build.pk)]
    entry = AuditEntry.objects.get(action="build.take_up")
    assert (entry.target, entry.details["silent_s"], entry.actor) == (build.pk, 70, "tester")
    assert run(build).state == BuildState.SUCCEEDED


@pytest.mark.parametrize("seconds", [5, 45])
def test_a_worker_that_may_still_live_keeps_its_build(
    seconds: int, build: Build, handed_on: Waiting, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True), pytest.raises(Conflict):
        services.take_up(build=silent(build, seconds), actor=ACTOR)

    assert handed_on == []


def test_cancelling_a_dead_worker_s_build_does_not_wait_for_the_sweep(
    build: Build, handed_on: Waiting, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        services.cancel_build(build=silent(build, 10), actor=ACTOR)
    assert handed_on == [], "its worker sees the wish by itself"
    Build.objects.update(cancel_requested_at=None)

    with django_capture_on_commit_callbacks(execute=True):
        services.cancel_build(build=silent(build, 70), actor=ACTOR)

    assert handed_on == [("run_build", build.pk)]
    assert run(build).state == BuildState.CANCELLED
