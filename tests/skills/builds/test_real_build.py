"""Builds in real sandboxes, from upload to a release that a sandbox starts from."""

from __future__ import annotations

import time

import pytest
from asgiref.sync import async_to_sync

from console.tenants.models import Space
from sandboxes.network import CLOSED
from sandboxes.types import CreateRequest, ExecRequest, ExecResult, ListFilter, TimeoutPolicy
from skills import services
from skills.build.claim import Claim
from skills.models import Build, BuildLogLine, BuildState, Release
from skills.plan import StepKind
from tests.skills.world import ACTOR, add_skill, install, log_of, run

pytestmark = [pytest.mark.sandbox, pytest.mark.slow, pytest.mark.timeout(300)]

SCRIPTS = {
    "scripts/table.py": "import tabulate\nprint(tabulate.tabulate([[1, 2]]))\n",
    "scripts/pad.js": "const pad = require('left-pad'); console.log(pad('x', 3));\n",
    "scripts/tree.sh": "#!/bin/sh\ntree /workspace\n",
}
STEPS = {
    StepKind.PIP: ["tabulate==0.9.0"],
    StepKind.NPM: ["left-pad@1.3.0"],
    StepKind.APT: ["tree"],
    StepKind.COMMAND: ["echo made > made.txt"],
    StepKind.CHECK: ["command -v tree", "python scripts/table.py", "node scripts/pad.js"],
}


def test_what_is_installed_is_verified_recorded_and_usable_in_a_session(real_space: Space) -> None:
    version = add_skill(real_space, files=SCRIPTS, steps=STEPS)
    build = install(real_space, version)
    assert build.state == BuildState.SUCCEEDED, log_of(build)
    assert build.report["ok"]
    assert build.report["warnings"] == 0
    release = build.result
    assert release is not None
    assert release.packages["pip"] == {"report": {"tabulate": "0.9.0"}}
    assert release.packages["npm"] == {"report": {"left-pad": "1.3.0"}}
    assert "tree" in release.packages["apt"]
    assert release.sizes["report"] > 0
    real_space.refresh_from_db()
    assert real_space.current_release == release
    assert sandboxes(real_space) == []
    use(real_space, release)


def use(space: Space, release: Release) -> None:
    skill = "/opt/weknora/tenant/skills/report"
    table, changed, added, left, manifest = in_session(
        space,
        release,
        f"{skill}/.venv/bin/python {skill}/scripts/table.py",
        f"echo x >> {skill}/SKILL.md",
        f"touch {skill}/.venv/lib/x",
        "ls -A /workspace /var/tmp /tmp /var/lib/apt/lists | grep -v ^/ ; id -u",
        "cat /opt/weknora/tenant/skills/.manifest.json",
    )
    assert (table.exit_code, b"1  2" in table.stdout) == (0, True)
    assert changed.exit_code != 0
    assert added.exit_code != 0
    assert left.stdout.split() == [b"input", b"output", b"1000"]
    assert b'"name": "report"' in manifest.stdout


def in_session(space: Space, release: Release, *scripts: str) -> list[ExecResult]:
    """Run the scripts as the session's user in a sandbox from the release, without a network."""

    backend = space.backend

    async def work() -> list[ExecResult]:
        request = CreateRequest(
            template=release.snapshot_id, network=CLOSED, timeout=TimeoutPolicy(timeout_s=60)
        )
        async with await backend.open_client() as client:
            sandbox = await client.create(request)
            try:
                return [
                    await client.run(sandbox, ExecRequest(argv=ExecRequest.shell_argv(script)))
                    for script in scripts
                ]
            finally:
                await client.delete(sandbox.id)

    return async_to_sync(work)()


def sandboxes(space: Space) -> list[str]:
    backend = space.backend

    async def work() -> list[str]:
        async with await backend.open_client() as client:
            return [info.id async for info in client.list(ListFilter())]

    return async_to_sync(work)()


def test_a_missing_package_fails_with_a_hint_and_one_click_mends_it(real_space: Space) -> None:
    version = add_skill(
        real_space,
        files={"scripts/load.py": "import yaml\nprint(yaml.safe_load('a: 1'))\n"},
        steps={},
    )
    failed = install(real_space, version)
    assert (failed.state, failed.error_code) == (BuildState.FAILED, "verify_failed")
    index = next(n for n, check in enumerate(failed.report["checks"]) if check["hint"])
    assert failed.report["checks"][index]["hint"]["item"] == "PyYAML"
    done = run(services.apply_hint(build=failed, index=index, actor=ACTOR))
    assert done.state == BuildState.SUCCEEDED, log_of(done)
    assert done.result is not None
    assert list(done.result.packages["pip"]["report"]) == ["pyyaml"]


def test_an_upgrade_keeps_packages_and_replaces_files(real_space: Space) -> None:
    steps = {StepKind.PIP: ["tabulate==0.9.0"]}
    install(real_space, add_skill(real_space, files={"old.txt": "old"}, steps=steps))
    build = install(real_space, add_skill(real_space, files={"new.txt": "new"}, steps=steps))
    assert build.state == BuildState.SUCCEEDED, log_of(build)
    assert "uv pip install" not in log_of(build)
    assert build.result is not None
    assert build.parent is not None
    assert build.result.packages["pip"] == {"report": {"tabulate": "0.9.0"}}
    (found,) = in_session(
        real_space,
        build.result,
        "cd /opt/weknora/tenant/skills/report && ls *.txt && .venv/bin/python -c 'import tabulate'",
    )
    assert (found.exit_code, found.stdout) == (0, b"new.txt\n")


def test_cancelling_kills_the_command_that_runs(real_space: Space) -> None:
    version = add_skill(real_space, steps={StepKind.COMMAND: ["echo started; sleep 321"]})
    build = services.install(space=real_space, version=version, actor=ACTOR)
    times: list[float] = []
    original = Claim.check

    def check(claim: Claim) -> None:
        # Somebody cancels from outside; here it is done from where the build looks for it.
        if not times and BuildLogLine.objects.filter(build=build, text="started").exists():
            services.cancel_build(build=Build.objects.get(pk=build.pk), actor=ACTOR)
            times.append(time.monotonic())
        original(claim)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Claim, "check", check)
        done = run(build)
    assert done.state == BuildState.CANCELLED
    assert time.monotonic() - times[0] < 10
    assert sandboxes(real_space) == []
