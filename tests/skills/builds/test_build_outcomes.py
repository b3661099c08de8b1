"""How builds end, on a simulated backend: what serves afterwards, and what is left."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from asgiref.sync import async_to_sync

from console.tenants.models import Space
from sandboxes.errors import Capacity, Conflict, InvalidRequest, TimedOut, Unavailable
from sandboxes.testing.simulated import Command, CommandResult, SimulatedSandbox
from sandboxes.types import ExecRequest
from skills import services
from skills.build.settings import BuildSettings
from skills.lock import hold_space
from skills.models import Build, BuildState, Promotion, PromotionKind, Release, ReleaseState
from skills.plan import StepKind
from tests.skills.simulated_backend import FileProvider
from tests.skills.world import ACTOR, SETTINGS, add_skill, install, log_of, run


def test_a_release_serves_after_the_first_build(space: Space, account: FileProvider) -> None:
    build = install(space, add_skill(space, "one"))
    assert (build.state, build.error) == (BuildState.SUCCEEDED, "")
    assert [step["step"] for step in build.steps][-1] == "switch"
    space.refresh_from_db()
    release = space.current_release
    assert release is not None
    assert release.snapshot_id in account.snapshots
    assert account.snapshots[release.snapshot_id][0].names == (release.planned_name,)
    assert release.packages["apt"] == {"bash": "5.2"}
    assert not account.sandboxes
    assert Promotion.objects.get(space=space).kind == PromotionKind.BUILD


def test_the_sandbox_carries_ownership_tags_and_a_closed_inbound(
    space: Space, account: FileProvider
) -> None:
    seen: list[SimulatedSandbox] = []
    account.commands["dpkg-query"] = _spying(account, seen)
    build = install(space, add_skill(space, "one"))
    request = seen[0].request
    assert request.metadata["skillyard_build"] == build.pk
    assert request.metadata["skillyard_space"] == space.pk
    assert (request.network.outbound, request.network.inbound) == (True, False)
    assert dict(request.env) == {}


def test_registries_limit_the_network_where_they_are_set(
    space: Space, account: FileProvider
) -> None:
    seen: list[SimulatedSandbox] = []
    account.commands["dpkg-query"] = _spying(account, seen)
    settings = BuildSettings(registries=("pypi.org", "*.pythonhosted.org"))
    version = add_skill(space, "one")
    build = services.install(space=space, version=version, actor=ACTOR)
    assert run(build, settings).state == BuildState.SUCCEEDED
    assert not seen[0].request.network.outbound
    assert seen[0].request.network.allow == ("*.pythonhosted.org", "pypi.org")


def test_a_failed_install_leaves_the_old_release_serving(
    space: Space, account: FileProvider
) -> None:
    install(space, add_skill(space, "one"))
    serving = Space.objects.get(pk=space.pk).current_release_id
    account.results["uv pip install"] = (1, b"", b"no such package\n")
    build = install(space, add_skill(space, "two", steps={StepKind.PIP: ["nope"]}))
    assert (build.state, build.error_code) == (BuildState.FAILED, "pip_failed")
    assert "no such package" in log_of(build)
    assert build.steps[-1] | {"step": "install", "ok": False} == build.steps[-1]
    assert Space.objects.get(pk=space.pk).current_release_id == serving
    assert not account.sandboxes
    assert Release.objects.filter(space=space).count() == 1


def test_an_identical_set_is_switched_to_without_a_sandbox(
    space: Space, account: FileProvider
) -> None:
    one, two = add_skill(space, "one"), add_skill(space, "two")
    first = install(space, one)
    install(space, two)
    created = len(account.created)
    again = run(services.uninstall(space=_fresh(space), skill=two.skill, actor=ACTOR))
    assert again.reused_release == first.result
    assert len(account.created) == created
    assert _fresh(space).current_release == first.result
    assert Promotion.objects.filter(space=space).first().kind == PromotionKind.REUSE


def test_a_missing_snapshot_is_not_reused_but_marked_broken(
    space: Space, account: FileProvider
) -> None:
    one, two = add_skill(space, "one"), add_skill(space, "two")
    first = install(space, one)
    install(space, two)
    assert first.result is not None
    _lose(account, first.result)
    again = run(services.uninstall(space=_fresh(space), skill=two.skill, actor=ACTOR))
    assert again.state == BuildState.SUCCEEDED
    assert again.reused_release is None
    first.result.refresh_from_db()
    assert first.result.state == ReleaseState.BROKEN


def test_a_build_on_a_lost_release_starts_from_the_base(
    space: Space, account: FileProvider
) -> None:
    first = install(space, add_skill(space, "one"))
    assert first.result is not None
    _lose(account, first.result)
    build = install(space, add_skill(space, "two"))
    assert (build.state, build.parent) == (BuildState.SUCCEEDED, None)
    assert [str(item.version) for item in build.items.all()] == ["one #1", "two #1"]
    first.result.refresh_from_db()
    assert first.result.state == ReleaseState.BROKEN


def test_the_last_skill_leaves_without_a_sandbox(space: Space, account: FileProvider) -> None:
    one = add_skill(space, "one")
    install(space, one)
    created = len(account.created)
    build = run(services.uninstall(space=_fresh(space), skill=one.skill, actor=ACTOR))
    assert build.state == BuildState.SUCCEEDED
    assert _fresh(space).current_release is None
    assert len(account.created) == created


def test_changed_credentials_stop_the_switch_and_take_the_snapshot_back(
    space: Space, account: FileProvider
) -> None:
    version = add_skill(space, "one")
    build = services.install(space=space, version=version, actor=ACTOR)

    async def rotate(op: str, phase: str, sandbox_id: str) -> None:
        if op == "snapshots.create" and phase == "after":
            from skills.build.context import in_db

            await in_db(_rotate, space)

    account.intercept = rotate
    done = run(build)
    assert (done.state, done.error_code) == (BuildState.FAILED, "not_switched")
    assert "restore the credentials or rebuild" in done.error
    assert account.snapshots == {}
    assert _fresh(space).current_release is None


def test_a_snapshot_whose_answer_was_lost_is_found_by_its_name(
    space: Space, account: FileProvider
) -> None:
    account.fail_next("snapshots.create", TimedOut("No answer."), phase="after")
    build = install(space, add_skill(space, "one"))
    assert build.state == BuildState.SUCCEEDED
    assert len(account.snapshots) == 1


def test_a_full_provider_is_asked_again(space: Space, account: FileProvider) -> None:
    account.fail_next("create", Capacity("Full.", retry_after_s=0.01))
    assert install(space, add_skill(space, "one")).state == BuildState.SUCCEEDED


def test_an_unreachable_backend_fails_the_build_with_its_sentence(
    space: Space, account: FileProvider
) -> None:
    account.fail_next("templates.get", Unavailable("The provider is down; try again later."))
    build = install(space, add_skill(space, "one"))
    assert (build.state, build.error_code) == (BuildState.FAILED, "unavailable")
    assert build.error == "The provider is down; try again later."


def test_a_missing_base_template_is_named(space: Space) -> None:
    space.base_template = "gone"
    space.save()
    build = install(space, add_skill(space, "one"))
    assert build.error_code == "template_missing"
    assert "“gone”" in build.error


def test_a_result_that_is_too_large_is_never_frozen(space: Space, account: FileProvider) -> None:
    version = add_skill(space, "one")
    build = services.install(space=space, version=version, actor=ACTOR)
    done = run(build, BuildSettings(max_bytes=1000))
    assert done.error_code == "too_large"
    assert account.calls["snapshots.create"] == 0


def test_a_step_that_overruns_ends_the_build(space: Space, account: FileProvider) -> None:
    account.commands["uv"] = _sleeping()
    version = add_skill(space, "one", steps={StepKind.PIP: ["numpy"]})
    build = services.install(space=space, version=version, actor=ACTOR)
    settings = BuildSettings(step_s={**SETTINGS.step_s, "install": 0.2}, poll_s=0.05)
    done = run(build, settings)
    assert (done.state, done.error_code) == (BuildState.FAILED, "too_long")
    assert not account.sandboxes


def test_cancelling_stops_the_running_command_within_a_second(
    space: Space, account: FileProvider
) -> None:
    stopped = threading.Event()
    version = add_skill(space, "one", steps={StepKind.PIP: ["numpy"]})
    build = services.install(space=space, version=version, actor=ACTOR)

    begun = time.monotonic()
    account.commands["uv"] = _cancelling(build, stopped)
    done = run(build)
    assert done.state == BuildState.CANCELLED
    assert stopped.is_set()
    assert time.monotonic() - begun < 5
    assert not account.sandboxes
    assert "The build was cancelled." in log_of(done)


def test_a_queued_build_is_cancelled_at_once(space: Space) -> None:
    build = services.install(space=space, version=add_skill(space, "one"), actor=ACTOR)
    assert services.cancel_build(build=build, actor=ACTOR).state == BuildState.CANCELLED
    assert run(build).state == BuildState.CANCELLED


def test_what_was_switched_cannot_be_cancelled(space: Space) -> None:
    build = install(space, add_skill(space, "one"))
    with pytest.raises(Conflict, match="roll back"):
        services.cancel_build(build=build, actor=ACTOR)


def test_builds_of_a_space_run_in_the_order_they_were_asked_for(space: Space) -> None:
    one = services.install(space=space, version=add_skill(space, "one"), actor=ACTOR)
    two = services.install(space=space, version=add_skill(space, "two"), actor=ACTOR)
    assert (one.queue_position, two.queue_position) == (0, 1)
    assert run(two).state == BuildState.QUEUED
    run(one)
    assert run(two).state == BuildState.SUCCEEDED
    assert [str(v) for v in services.wanted_versions(_fresh(space))] == ["one #1", "two #1"]


def test_a_failed_build_does_not_fail_the_next_one(space: Space, account: FileProvider) -> None:
    bad = add_skill(space, "bad", steps={StepKind.PIP: ["nope"]})
    first = services.install(space=space, version=bad, actor=ACTOR)
    second = services.install(space=space, version=add_skill(space, "good"), actor=ACTOR)
    account.results["uv pip install"] = (1, b"", b"")
    assert run(first).state == BuildState.FAILED
    done = run(second)
    assert done.state == BuildState.SUCCEEDED
    assert [str(item.version) for item in done.items.all()] == ["good #1"]


def test_a_worker_that_finds_the_space_taken_leaves_the_build_queued(space: Space) -> None:
    build = services.install(space=space, version=add_skill(space, "one"), actor=ACTOR)

    async def other() -> None:
        from skills.build import pipeline

        async with hold_space(space.pk) as lock:
            assert lock is not None
            await pipeline.run(build.pk)

    async_to_sync(other)()
    assert Build.objects.get(pk=build.pk).state == BuildState.QUEUED


def test_a_worker_that_was_overtaken_changes_nothing(space: Space, account: FileProvider) -> None:
    version = add_skill(space, "one", steps={StepKind.PIP: ["numpy"]})
    build = services.install(space=space, version=version, actor=ACTOR)
    account.commands["uv"] = _overtaking(build)
    run(build)
    row = Build.objects.get(pk=build.pk)
    assert (row.state, row.attempt) == (BuildState.RUNNING, 2)
    assert _fresh(space).current_release is None
    assert account.snapshots == {}


def test_a_build_that_kills_its_workers_is_given_up(space: Space) -> None:
    build = services.install(space=space, version=add_skill(space, "one"), actor=ACTOR)
    Build.objects.filter(pk=build.pk).update(attempt=3, state=BuildState.RUNNING)
    done = run(build)
    assert (done.state, done.error_code) == (BuildState.FAILED, "worker_lost")


def test_the_same_wish_is_the_same_build(space: Space) -> None:
    version = add_skill(space, "one")
    first = services.install(space=space, version=version, actor=ACTOR)
    assert services.install(space=space, version=version, actor=ACTOR) == first
    assert Build.objects.count() == 1


def test_wishes_that_make_no_sense_are_refused(space: Space) -> None:
    version = add_skill(space, "one")
    with pytest.raises(Conflict, match="does not have “one”"):
        services.uninstall(space=space, skill=version.skill, actor=ACTOR)
    with pytest.raises(Conflict, match="install it instead"):
        services.upgrade(space=space, version=version, actor=ACTOR)
    with pytest.raises(Conflict, match="nothing to build"):
        services.compact(space=space, actor=ACTOR)
    with pytest.raises(InvalidRequest, match="percentage"):
        services.request_build(space=space, actor=ACTOR, add=[version], rollout_percent=101)


def test_a_version_of_another_tenant_is_not_known(space: Space) -> None:
    from tests.skills.world import make_space

    other = make_space("simulated", path="elsewhere")
    foreign = add_skill(other, "one")
    with pytest.raises(InvalidRequest, match="no skill version"):
        services.install(space=space, version=foreign, actor=ACTOR)


def test_retrying_takes_the_plans_as_they_are_now(space: Space, account: FileProvider) -> None:
    version = add_skill(space, "one", steps={StepKind.PIP: ["nope"]})
    account.results["uv pip install"] = (1, b"", b"")
    failed = install(space, version)
    with pytest.raises(Conflict, match="Only a build that failed"):
        services.retry_build(build=install(space, add_skill(space, "two")), actor=ACTOR)
    add_skill(space, "one", steps={})
    done = run(services.retry_build(build=failed, actor=ACTOR))
    assert done.state == BuildState.SUCCEEDED


def _fresh(space: Space) -> Space:
    return Space.objects.get(pk=space.pk)


def _lose(account: FileProvider, release: Release) -> None:
    del account.snapshots[release.snapshot_id]
    account._save()


def _rotate(space: Space) -> None:
    backend = space.backend
    backend.secrets = {"api_key": "another-key"}
    backend.save()


def _spying(account: FileProvider, seen: list[SimulatedSandbox]) -> Command:
    async def command(
        sandbox: SimulatedSandbox, request: ExecRequest, stdin: bytes
    ) -> CommandResult:
        seen.append(sandbox)
        return await account._command(sandbox, request, stdin)

    return command


def _sleeping(stopped: threading.Event | None = None) -> Command:
    async def command(
        sandbox: SimulatedSandbox, request: ExecRequest, stdin: bytes
    ) -> CommandResult:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if stopped is not None:
                stopped.set()
            raise
        return 0, b"", b""

    return command


def _cancelling(build: Build, stopped: threading.Event) -> Command:
    sleeping = _sleeping(stopped)

    async def command(
        sandbox: SimulatedSandbox, request: ExecRequest, stdin: bytes
    ) -> CommandResult:
        from skills.build.context import in_db

        await in_db(services.cancel_build, build=build, actor=ACTOR)
        return await sleeping(sandbox, request, stdin)

    return command


def _overtaking(build: Build) -> Command:
    sleeping = _sleeping()

    async def command(
        sandbox: SimulatedSandbox, request: ExecRequest, stdin: bytes
    ) -> CommandResult:
        from skills.build.context import in_db

        await in_db(lambda: Build.objects.filter(pk=build.pk).update(attempt=2))
        return await sleeping(sandbox, request, stdin)

    return command
