"""Run by test_chaos.py as a process of its own: kills a worker at every point of a build, and looks what is left.

    python -m tests.skills.builds.chaos_driver SCENARIO STEP OFFSET
    python -m tests.skills.builds.chaos_driver real SOCKET POINT [POINT ...]

Each point is one fork: the child runs the build and is killed by SIGKILL there. Then sweeps run until nothing
is left to do, and what must hold is looked at. Prints one JSON object: points, and by point what was wrong.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
import types
from datetime import timedelta
from pathlib import Path
from typing import Any

from asgiref.sync import async_to_sync

# What a worker of the real scenario is killed at, besides the points that it passes.
IN_A_COMMAND = "in a command"


def main(scenario: str, arguments: list[str]) -> None:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    _prepare()
    failures: dict[str, str] = {}
    if scenario == "real":
        socket, *points = arguments
        for point in points:
            try:
                _one_real(socket, point)
            except Exception:
                failures[point] = traceback.format_exc()[-1500:]
        json.dump({"points": len(points), "failures": failures}, sys.stdout)
        return
    every, offset = map(int, arguments)
    number, killed = 1 + offset, True
    while killed:
        point, killed = "", True
        try:
            point, killed = _one(scenario, number)
        except Exception:
            failures[f"{number} {point}"] = traceback.format_exc()[-1500:]
        number += every
    json.dump({"points": number - every, "failures": failures}, sys.stdout)


def _prepare() -> None:
    from sandboxes.registry import PROVIDERS, Provider
    from skills import tasks
    from skills.build import context
    from skills.services import builds
    from tests.skills import simulated_backend

    PROVIDERS["simulated"] = Provider("simulated", "Simulated", "tests.skills.simulated_backend")
    builds.dispatch = lambda build_id: None  # type: ignore[assignment]
    # What tasks hand on is carried out by `_settle`.
    for task in (tasks.run_build, tasks.tell_sessions, tasks.delete_snapshot):
        task.delay = lambda pk, name=task.__name__: WAITING.append((name, pk))  # type: ignore[misc]
    simulated_backend.POINTS.kill_at = 0
    _count_database_calls(context)


WAITING: list[tuple[str, str]] = []


def _count_database_calls(context: Any) -> None:
    """Each use of the database by a build is a point too, before and after."""
    import sys as _sys

    from tests.skills.simulated_backend import POINTS

    original = context.in_db

    async def counted(function: Any, *args: Any, **kwargs: Any) -> Any:
        name = getattr(function, "__qualname__", str(function))
        # The watcher's calls come when they come.
        quiet = name in ("Claim.check", "Claim.beat")
        if not quiet:
            POINTS.pass_by(f"before {name}")
        result = await original(function, *args, **kwargs)
        if not quiet:
            POINTS.pass_by(f"after {name}")
        return result

    for module in list(_sys.modules.values()):
        if getattr(module, "in_db", None) is original:
            module.in_db = counted


def _one(scenario: str, number: int) -> tuple[str, bool]:
    """Kill at point `number`. Returns its name, and whether the build got that far."""
    from django.db import connections

    from skills.models import Build
    from tests.skills.simulated_backend import POINTS, account

    space, build = _scene(scenario, number)
    path = space.backend.settings["path"]
    connections.close_all()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        POINTS.kill_at, POINTS.passed = number, 0
        POINTS.pass_by = _telling(POINTS, write)  # type: ignore[method-assign]
        try:
            _work(build.pk)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        point = pipe.read().splitlines()[-1]
    status = os.waitpid(child, 0)[1]
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    if not killed:
        over = Build.objects.get(pk=build.pk)
        assert (over.is_finished, over.attempt) == (True, 1), "the worker gave up by itself"
    _let_the_lock_lapse(space)
    _settle(space)
    build = Build.objects.get(pk=build.pk)
    try:
        _check(space, build, account(path))
    except AssertionError as error:
        raise AssertionError(f"{point}: {error}") from error
    return point, killed


def _one_real(socket: str, point: str) -> None:
    """Kill a worker on a real sandboxd at a point with this name."""
    from django.db import connections

    from console.tenants.models import Space
    from skills import services
    from skills.models import Build, BuildLogLine
    from skills.plan import StepKind
    from tests.skills.simulated_backend import POINTS
    from tests.skills.world import ACTOR, add_skill, make_space

    space = make_space("local", socket=socket)
    command = "echo working; sleep 2" if point == IN_A_COMMAND else "true"
    version = add_skill(space, "one", steps={StepKind.COMMAND: [command]})
    build = services.install(space=space, version=version, actor=ACTOR)
    connections.close_all()
    child = os.fork()
    if child == 0:
        POINTS.kill_named = point
        try:
            _work(build.pk)
        finally:
            os._exit(0)
    if point == IN_A_COMMAND:
        lines = BuildLogLine.objects.filter(build=build, stream="stdout", text="working")
        while not lines.exists() and not os.waitid(
            os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT
        ):
            time.sleep(0.05)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status), "the worker was not killed"
    _let_the_lock_lapse(space)
    _settle(space)
    build = Build.objects.get(pk=build.pk)
    _check(Space.objects.get(pk=space.pk), build, async_to_sync(_listed)(space, build))


async def _listed(space: Any, build: Any) -> Any:
    """What the provider has of this space, in the form of a simulated account."""
    from sandboxes.types import ListFilter

    async with await space.backend.open_client() as client:
        tags = {"skillyard_space": space.pk}
        boxes = [info.id async for info in client.list(ListFilter(metadata=tags))]
        stem = f"skillyard-{space.pk.partition('_')[2][-10:]}-"
        assert client.snapshots is not None
        shots = [
            shot.id
            async for shot in client.snapshots.list()
            if any(stem in name for name in shot.names)
        ]
    return types.SimpleNamespace(sandboxes=boxes, snapshots=shots, _load=lambda: None)


def _telling(points: Any, write: int) -> Any:
    original = type(points).pass_by

    def pass_by(name: str) -> None:
        os.write(write, f"{name}\n".encode())
        original(points, name)

    return pass_by


def _work(build_id: str) -> None:
    from skills.build import pipeline

    async_to_sync(pipeline.run)(build_id, settings=_settings())


def _settings() -> Any:
    from skills.build.settings import BuildSettings

    return BuildSettings(
        poll_s=0.02, heartbeat_s=0.05, stuck_after_s=0.0, lease_s=30.0, queued_after_s=0.0
    )


def _scene(scenario: str, number: int) -> tuple[Any, Any]:
    """A space, and a queued build of it that has to succeed in the end."""
    from console.tenants.models import Space
    from skills import services
    from tests.skills.world import ACTOR, add_skill, make_space

    folder = Path(os.environ["SKILLYARD_DATA_DIR"])
    space = make_space("simulated", path=str(folder / f"{scenario}-{number}.account"))
    one, two = add_skill(space, "one"), add_skill(space, "two")

    def ask(**options: Any) -> Any:
        return services.request_build(space=Space.objects.get(pk=space.pk), actor=ACTOR, **options)

    def done(**options: Any) -> None:
        _work(ask(**options).pk)

    if scenario == "first":
        build = ask(add=[one, two])
    elif scenario == "change":
        done(add=[one])
        build = ask(add=[two])
    elif scenario == "reuse":
        done(add=[one])
        done(add=[two])
        build = ask(versions=[one])
    elif scenario == "clear":
        done(add=[one])
        build = ask(remove=[one.skill])
    elif scenario == "candidate":
        done(add=[one])
        build = ask(add=[two], rollout_percent=20, rollout_sessions=["chat"])
    else:
        raise SystemExit(f"no scenario {scenario}")
    return Space.objects.get(pk=space.pk), build


def _let_the_lock_lapse(space: Any) -> None:
    """As it does by itself a while after its holder died."""
    from django.conf import settings
    from redis import Redis

    with Redis.from_url(settings.REDIS_URL) as redis:
        for key in redis.scan_iter(f"*{space.pk}*:lock"):
            redis.delete(key)


def _settle(space: Any) -> None:
    """Sweeps as the beat would, until there is nothing to do."""
    from django.utils import timezone

    from skills import reaper, tasks

    for _ in range(20):
        WAITING.clear()
        report = async_to_sync(reaper.sweep)(settings=_settings())
        assert not report.failures, report.failures
        waiting = list(WAITING)
        for name, pk in waiting:
            if name == "run_build":
                _work(pk)
            else:
                getattr(tasks, name).run(pk)
        if not waiting and not report.cleared_builds:
            break
    later = timezone.now() + timedelta(minutes=5)
    report = reaper.SweepReport()
    async_to_sync(_reconcile)(space.backend, report, later)
    assert not report.broken_releases, report.broken_releases


async def _reconcile(backend: Any, report: Any, now: Any) -> None:
    from skills import reaper

    async with await backend.open_client() as client:
        await reaper.reconcile_backend(backend, client, report, now=now)


def _check(space: Any, build: Any, account: Any) -> None:
    from console.tenants.models import Space
    from skills.models import Promotion, Release, ReleaseState

    account._load()
    space = Space.objects.get(pk=space.pk)
    assert build.state == "succeeded", f"the build is {build.state}: {build.error}"
    assert not account.sandboxes, f"sandboxes are left: {list(account.sandboxes)}"
    kept = Release.objects.filter(space=space).exclude(state=ReleaseState.DELETED)
    ledger = {release.snapshot_id for release in kept}
    assert "" not in ledger, "a release without a snapshot is left"
    assert ledger == set(account.snapshots), (
        f"{ledger} in the ledger, {set(account.snapshots)} there"
    )
    serving = space.current_release
    if serving is not None:
        assert serving.state == ReleaseState.ACTIVE
        assert serving.usable_on(space.backend)
    assert kept.filter(state=ReleaseState.ACTIVE).count() == len(
        {pk for pk in (space.current_release_id, space.candidate_release_id) if pk}
    ), "a release is active that nothing serves"
    _check_success(space, build)
    assert not Promotion.objects.filter(space=space, sessions_told_at=None).exists()
    assert build.sandbox_id == ""


def _check_success(space: Any, build: Any) -> None:
    release = build.result
    if build.rollout_percent is not None:
        assert space.candidate_release == release, "the candidate is another one"
        assert (space.rollout_percent, space.rollout_sessions) == (20, ["chat"])
        assert space.current_release != release
        return
    assert space.current_release == release, "the space serves another release"
    carried = [row.version_id for row in release.items.all()] if release else []
    assert carried == [row.version_id for row in build.items.all()]
    assert all(step["ok"] for step in build.steps), build.steps


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
