"""The sweep that hands on and clears away what workers left."""

from __future__ import annotations

from datetime import timedelta

from asgiref.sync import async_to_sync
from django.utils import timezone

from console.tenants.models import Space
from sandboxes.errors import Unavailable
from skills import reaper, services
from skills.lock import hold_space
from skills.models import Build, BuildState, Promotion, Release, ReleaseState
from skills.reaper import SweepReport
from tests.skills.simulated_backend import FileProvider
from tests.skills.world import ACTOR, add_skill, install, run

Waiting = list[tuple[str, str]]


def sweep() -> SweepReport:
    return async_to_sync(reaper.sweep)()


def age(build: Build, **ago: float) -> None:
    then = timezone.now() - timedelta(**ago)
    Build.objects.filter(pk=build.pk).update(created_at=then, heartbeat_at=then)


def test_a_build_whose_message_was_lost_is_handed_on_again(
    space: Space, handed_on: Waiting
) -> None:
    build = services.install(space=space, version=add_skill(space, "one"), actor=ACTOR)
    assert sweep().dispatched == []
    Build.objects.filter(pk=build.pk).update(created_at=timezone.now() - timedelta(minutes=1))
    assert sweep().dispatched == [build.pk]
    assert handed_on == [("run_build", build.pk)]
    assert sweep().dispatched == []


def test_only_the_first_build_of_a_space_is_handed_on(space: Space) -> None:
    first = services.install(space=space, version=add_skill(space, "one"), actor=ACTOR)
    second = services.install(space=space, version=add_skill(space, "two"), actor=ACTOR)
    age(first, minutes=20)
    age(second, minutes=20)
    assert sweep().dispatched == [first.pk]


def test_a_silent_worker_loses_its_build_and_a_living_one_keeps_it(space: Space) -> None:
    build = services.install(space=space, version=add_skill(space, "one"), actor=ACTOR)
    Build.objects.filter(pk=build.pk).update(state=BuildState.RUNNING, attempt=1)
    age(build, seconds=30)
    assert sweep().dispatched == []
    age(build, seconds=120)
    assert sweep().dispatched == [build.pk]
    assert run(build).state == BuildState.SUCCEEDED


def test_a_dead_worker_s_cancelled_build_ends_cancelled_and_clean(
    space: Space, account: FileProvider
) -> None:
    build = services.install(space=space, version=add_skill(space, "one"), actor=ACTOR)
    lost = _lost_sandbox(account, space, build)
    Build.objects.filter(pk=build.pk).update(
        state=BuildState.RUNNING, attempt=1, sandbox_id=lost, cancel_requested_at=timezone.now()
    )
    assert run(build).state == BuildState.CANCELLED
    assert sweep().cleared_builds == [build.pk]
    assert not account.sandboxes
    assert Build.objects.get(pk=build.pk).sandbox_id == ""


def test_a_sandbox_that_could_not_be_deleted_is_deleted_later(
    space: Space, account: FileProvider
) -> None:
    account.fail_next("delete", Unavailable("Down."))
    build = install(space, add_skill(space, "one"))
    assert build.state == BuildState.SUCCEEDED
    assert len(account.sandboxes) == 1
    assert sweep().cleared_builds == [build.pk]
    assert not account.sandboxes


def test_a_snapshot_that_could_not_be_taken_back_is_taken_back_later(
    space: Space, account: FileProvider
) -> None:
    build = services.install(space=space, version=add_skill(space, "one"), actor=ACTOR)

    async def rotate_there_and_back(op: str, phase: str, sandbox_id: str) -> None:
        if op == "snapshots.create" and phase == "after":
            from skills.build.context import in_db

            await in_db(lambda: Build.objects.filter(pk=build.pk).update(cancel_requested_at=NOW))
            account.fail_next("snapshots.delete", Unavailable("Down."))

    account.intercept = rotate_there_and_back
    assert run(build).state == BuildState.CANCELLED
    account.intercept = None
    assert len(account.snapshots) == 1
    assert sweep().cleared_builds == [build.pk]
    assert account.snapshots == {}
    assert Release.objects.get(build=build).state == ReleaseState.DELETED
    assert sweep().cleared_builds == []


def test_nothing_is_cleared_while_a_worker_has_the_space(
    space: Space, account: FileProvider
) -> None:
    account.fail_next("delete", Unavailable("Down."))
    install(space, add_skill(space, "one"))

    async def both() -> SweepReport:
        async with hold_space(space.pk):
            return await reaper.sweep()

    assert async_to_sync(both)().cleared_builds == []
    assert len(account.sandboxes) == 1


def test_sessions_that_were_not_told_are_told_again(space: Space, handed_on: Waiting) -> None:
    install(space, add_skill(space, "one"))
    promotion = Promotion.objects.get(space=space)
    handed_on.clear()
    sweep()
    assert handed_on == [("tell_sessions", promotion.pk)]


def test_one_backend_s_trouble_does_not_stop_the_sweep(space: Space, account: FileProvider) -> None:
    account.fail_next("delete", Unavailable("Down."))
    install(space, add_skill(space, "one"))
    account.fail_next("list", Unavailable("Still down."))
    assert sweep().failures == ["backend: Still down."]
    assert len(sweep().cleared_builds) == 1


NOW = timezone.now()


def _lost_sandbox(account: FileProvider, space: Space, build: Build) -> str:
    from tests.skills.releases.test_reconcile import _start

    return _start(account, space, build.pk)
