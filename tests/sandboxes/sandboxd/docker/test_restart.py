"""A new sandboxd finds what the old one left in Docker, and goes on with it."""

from __future__ import annotations

import asyncio
import json

import docker
import pytest

from sandboxes.errors import Conflict, NotFound, SandboxError, Terminal, Unavailable
from sandboxes.network import CLOSED, OPEN
from sandboxes.sandboxd.engines.base import AdoptedSandbox, EngineSandboxState, Limits, SandboxSpec
from sandboxes.sandboxd.engines.docker.engine import DockerEngine
from tests.sandboxes.dockerd import Dockerd
from tests.sandboxes.dockerd import start as start_dockerd
from tests.sandboxes.sandboxd.docker.conftest import (
    OwnEngine,
    container_of,
    create_in,
    make_engine,
    new_id,
)
from tests.sandboxes.sandboxd.runc.shell import Shell, until

pytestmark = pytest.mark.docker


async def restart(engine: DockerEngine) -> list[AdoptedSandbox]:
    await engine.aclose()
    return await engine.start()


def record_of(engine: DockerEngine, shell: Shell) -> dict[str, object]:
    path = engine.data_dir / "sandboxes" / shell.id / "engine.json"
    found: dict[str, object] = json.loads(path.read_text())
    return found


async def test_a_running_sandbox_is_adopted_with_its_processes_and_network(
    own_engine: OwnEngine, image: str
) -> None:
    async with own_engine() as engine:
        shell = await create_in(engine, image, network=OPEN)
        await shell.start("sh", "-c", "echo kept > /tmp/f; exec sleep 4000")
        await shell.sh("until test -s /tmp/f; do sleep 0.01; done")
        adopted = await restart(engine)
        expected = AdoptedSandbox(id=shell.id, image=image, state=EngineSandboxState.RUNNING)
        assert adopted == [expected]
        assert "sleep 4000" in (await shell.run("ps", "ax")).stdout
        assert (await shell.run("cat", "/tmp/f")).stdout == "kept\n"
        assert "eth0" in (await shell.run("cat", "/proc/net/dev")).stdout
        await engine.set_network(shell.id, CLOSED)
        assert "eth0" not in (await shell.run("cat", "/proc/net/dev")).stdout


async def test_one_that_somebody_killed_is_dead_then_cleaned(
    own_engine: OwnEngine, image: str, witness: docker.DockerClient
) -> None:
    async with own_engine() as engine:
        shell, other = await create_in(engine, image), await create_in(engine, image)
        container_of(witness, shell).kill()

        async def dead() -> bool:
            return await engine.state(shell.id) is EngineSandboxState.DEAD

        await until(dead)
        with pytest.raises(Terminal):
            await shell.run("true")
        with pytest.raises(SandboxError):
            await engine.files(shell.id).stat("/")
        assert [found.id for found in await restart(engine)] == [other.id]
        with pytest.raises(NotFound):
            await engine.state(shell.id)


async def test_one_that_somebody_started_anew_is_not_the_one_we_knew(
    own_engine: OwnEngine, image: str, witness: docker.DockerClient
) -> None:
    """Its network has no rules: it must not be used."""
    async with own_engine() as engine:
        shell = await create_in(engine, image, network=OPEN)
        container_of(witness, shell).restart(timeout=0)
        assert await engine.state(shell.id) is EngineSandboxState.DEAD
        assert await restart(engine) == []


async def test_one_that_somebody_removed_is_gone(
    own_engine: OwnEngine, image: str, witness: docker.DockerClient
) -> None:
    async with own_engine() as engine:
        shell, other = await create_in(engine, image), await create_in(engine, image)
        for each in (shell, other):
            container_of(witness, each).remove(force=True)
        await engine.destroy(shell.id)
        assert await restart(engine) == []


async def test_a_container_without_a_record_is_removed(
    own_engine: OwnEngine, image: str, witness: docker.DockerClient
) -> None:
    async with own_engine() as engine:
        shell = await create_in(engine, image)
        await engine.aclose()
        (engine.data_dir / "sandboxes" / shell.id / "engine.json").unlink()
        assert await engine.start() == []
        assert witness.containers.list(all=True) == []


async def test_a_half_made_one_is_removed(own_engine: OwnEngine, image: str) -> None:
    async with own_engine() as engine:
        shell = await create_in(engine, image)
        path = engine.data_dir / "sandboxes" / shell.id / "engine.json"
        record = record_of(engine, shell)
        await engine.aclose()
        path.write_text(json.dumps(record | {"phase": "creating", "container_id": ""}))
        assert await engine.start() == []


async def test_one_that_a_snapshot_left_standing_still_goes_on(
    own_engine: OwnEngine, image: str, witness: docker.DockerClient
) -> None:
    async with own_engine() as engine:
        shell = await create_in(engine, image)
        container_of(witness, shell).pause()
        assert len(await restart(engine)) == 1
        assert (await shell.run("echo", "thawed")).stdout == "thawed\n"


async def test_containers_of_others_are_not_touched(
    own_engine: OwnEngine, image: str, witness: docker.DockerClient
) -> None:
    async with own_engine() as engine:
        shell = await create_in(engine, image)
        foreign = witness.containers.create(
            record_of(engine, shell)["image_id"], "true", labels={"skillyard.host": "another"}
        )
        try:
            await restart(engine)
            foreign.reload()
        finally:
            foreign.remove()


async def test_cancelling_a_create_leaves_nothing(
    own_engine: OwnEngine, image: str, witness: docker.DockerClient
) -> None:
    async with own_engine() as engine:
        await create_in(engine, image)
        for step in range(6):
            spec = SandboxSpec(id=new_id(), image=image, network=OPEN, limits=Limits())
            task = asyncio.create_task(engine.create(spec))
            await asyncio.sleep(step * 0.04)
            if task.cancel():
                with pytest.raises(asyncio.CancelledError):
                    await task
            else:  # it was faster
                await engine.destroy(spec.id)
        assert len(engine.sandbox_ids()) == 1
        assert len(witness.containers.list(all=True)) == 1


async def test_a_second_sandboxd_on_the_same_folder_is_refused(
    own_engine: OwnEngine, dockerd: Dockerd
) -> None:
    async with own_engine() as engine:
        with pytest.raises(Conflict, match="--data-dir"):
            await make_engine(engine.data_dir, dockerd).start()


@pytest.mark.slow
async def test_docker_stops_and_comes_back(
    image: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its containers end with it. What was asked for meanwhile fails in words, and is not lost."""
    with start_dockerd() as own:
        engine = make_engine(tmp_path_factory.mktemp("data") / "data", own)
        await engine.start()
        try:
            shell = await create_in(engine, image)
            await shell.sh("echo kept > /opt/tool")
            await engine.snapshot(shell.id, "snap-1")
            await engine.settled()
            own.stop()

            async def dead() -> bool:
                return await engine.state(shell.id) is EngineSandboxState.DEAD

            await until(dead)
            for work in (engine.destroy(shell.id), create_in(engine, image)):
                with pytest.raises(Unavailable, match="Docker"):
                    await work
            own.start_again()
            await engine.destroy(shell.id)
            again = await create_in(engine, "snap-1")
            assert (await again.run("cat", "/opt/tool")).stdout == "kept\n"
            await engine.destroy(again.id)
            await engine.delete_snapshot("snap-1")
            assert engine.sandbox_ids() == []
        finally:
            await engine.aclose()
