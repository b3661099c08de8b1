"""A new sandboxd finds what the old one left, and goes on with it."""

from __future__ import annotations

import asyncio
import json
import os
import signal

import pytest

from sandboxes.errors import Conflict, NotFound, Terminal, Unavailable
from sandboxes.network import CLOSED
from sandboxes.sandboxd.engines.base import (
    AdoptedSandbox,
    EngineSandboxState,
    Limits,
    SandboxSpec,
)
from sandboxes.sandboxd.engines.runc.engine import RuncEngine
from tests.sandboxes.sandboxd.runc.conftest import TEMPLATES_DIR, OwnEngine, create_in
from tests.sandboxes.sandboxd.runc.shell import Shell, until

pytestmark = pytest.mark.sandbox


async def _restart(engine: RuncEngine) -> list[AdoptedSandbox]:
    await engine.aclose()
    return await engine.start()


async def test_running_and_paused_sandboxes_are_adopted(own_engine: OwnEngine, image: str) -> None:
    async with own_engine() as engine:
        running, paused = await create_in(engine, image), await create_in(engine, image)
        await running.start("sh", "-c", "echo kept > /tmp/f; sleep 4000")
        await paused.start("sleep", "4001")
        await running.sh("until test -e /tmp/f; do sleep 0.01; done")
        await engine.pause(paused.id)

        adopted = {found.id: found for found in await _restart(engine)}

        assert adopted[running.id].state is EngineSandboxState.RUNNING
        assert adopted[paused.id].state is EngineSandboxState.PAUSED
        assert adopted[running.id].image == image
        assert "sleep 4000" in (await running.run("ps", "ax")).stdout
        assert (await running.run("cat", "/tmp/f")).stdout == "kept\n"
        with pytest.raises(Conflict):
            await paused.run("true")
        await engine.resume(paused.id)
        assert "sleep 4001" in (await paused.run("ps", "ax")).stdout


async def test_sandbox_killed_from_outside_is_dead_then_cleaned(
    own_engine: OwnEngine, image: str
) -> None:
    async with own_engine() as engine:
        shell, other = await create_in(engine, image), await create_in(engine, image)
        os.kill(_init_pid(engine, shell), signal.SIGKILL)

        async def dead() -> bool:
            return await engine.state(shell.id) is EngineSandboxState.DEAD

        await until(dead)
        with pytest.raises(Terminal):
            await shell.run("true")
        with pytest.raises(Terminal):
            await engine.pause(shell.id)
        adopted = await _restart(engine)
        assert [found.id for found in adopted] == [other.id]
        with pytest.raises(NotFound):
            await engine.state(shell.id)
        assert not (engine.data_dir / "sandboxes" / shell.id).exists()


def _init_pid(engine: RuncEngine, shell: Shell) -> int:
    record = engine.data_dir / "sandboxes" / shell.id / "engine.json"
    return int(json.loads(record.read_text())["init_pid"])


async def test_pid_that_another_process_has_now_is_not_touched(
    own_engine: OwnEngine, image: str
) -> None:
    async with own_engine() as engine:
        shell = await create_in(engine, image)
        path = engine.data_dir / "sandboxes" / shell.id / "engine.json"
        record = json.loads(path.read_text())
        await engine.aclose()
        path.write_text(json.dumps(record | {"init_pid": os.getpid()}))
        assert await engine.start() == []
        os.kill(os.getpid(), 0)


async def test_reboot_leaves_nothing_to_adopt(own_engine: OwnEngine, image: str) -> None:
    async with own_engine() as engine:
        shell = await create_in(engine, image)
        path = engine.data_dir / "sandboxes" / shell.id / "engine.json"
        record = json.loads(path.read_text())
        await engine.aclose()
        path.write_text(json.dumps(record | {"boot_id": "an earlier one"}))
        assert await engine.start() == []


async def test_unreadable_record_is_cleaned(own_engine: OwnEngine, image: str) -> None:
    async with own_engine() as engine:
        shell = await create_in(engine, image)
        (engine.data_dir / "sandboxes" / shell.id / "engine.json").write_text("{")
        assert await _restart(engine) == []


async def test_sandbox_frozen_by_an_unfinished_snapshot_thaws(
    own_engine: OwnEngine, image: str
) -> None:
    async with own_engine() as engine:
        shell = await create_in(engine, image)
        await engine._sandboxes[shell.id].cgroup.freeze()
        await _restart(engine)
        assert (await shell.run("echo", "thawed")).stdout == "thawed\n"


async def test_second_sandboxd_on_the_same_folder_is_refused(
    own_engine: OwnEngine, image: str
) -> None:
    async with own_engine() as engine:
        shell = await create_in(engine, image)
        second = RuncEngine(data_dir=engine.data_dir, templates_dir=TEMPLATES_DIR)
        with pytest.raises(Conflict, match="--data-dir"):
            await second.start()
        assert (await shell.run("true")).code == 0


async def test_dead_spawner_is_replaced(own_engine: OwnEngine, image: str) -> None:
    async with own_engine() as engine:
        shell = await create_in(engine, image)
        process = await shell.start("sleep", "60")
        pid = json.loads((engine.data_dir / "spawner.json").read_text())["pid"]
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(Unavailable):
            await process.wait()
        await process.kill_tree()
        assert "sleep 60" not in (await shell.run("ps", "ax")).stdout


async def test_id_that_is_taken_is_refused_and_its_sandbox_stays(
    own_engine: OwnEngine, image: str
) -> None:
    async with own_engine() as engine:
        shell = await create_in(engine, image)
        spec = SandboxSpec(id=shell.id, image=image, network=CLOSED, limits=Limits())
        results = await asyncio.gather(
            *(engine.create(spec) for _ in range(3)), return_exceptions=True
        )
        assert [type(result) for result in results] == [Conflict] * 3
        assert (await shell.run("true")).code == 0
