"""A paused sandbox stands still and keeps its memory."""

from __future__ import annotations

import asyncio

import pytest

from sandboxes.errors import Conflict, NotFound
from sandboxes.sandboxd.engines.base import EngineSandboxState
from tests.sandboxes.sandboxd.runc.shell import Shell, until

pytestmark = pytest.mark.sandbox

_COUNTER = "i=0; while :; do i=$((i+1)); echo $i > /tmp/count; sleep 0.01; done"


async def _count(shell: Shell) -> int:
    data = b""
    async for part in await shell.engine.files(shell.id).read("/tmp/count"):
        data += part
    return int(data or b"0")


async def _until_above(shell: Shell, floor: int) -> int:
    async def above() -> bool:
        return await _count(shell) > floor

    await until(above)
    return await _count(shell)


async def test_counter_stands_and_goes_on(shell: Shell) -> None:
    await shell.run("touch", "/tmp/count")
    process = await shell.start("bash", "-c", _COUNTER)
    await _until_above(shell, 2)

    await shell.engine.pause(shell.id)
    await shell.engine.pause(shell.id)
    assert await shell.engine.state(shell.id) is EngineSandboxState.PAUSED
    paused_at = await _count(shell)
    await asyncio.sleep(0.2)
    assert await _count(shell) == paused_at
    with pytest.raises(Conflict, match="resume"):
        await shell.run("true")

    await shell.engine.resume(shell.id)
    await shell.engine.resume(shell.id)
    assert await shell.engine.state(shell.id) is EngineSandboxState.RUNNING
    assert await _until_above(shell, paused_at) < paused_at + 100
    await process.kill_tree()


async def test_command_can_be_killed_while_paused(shell: Shell) -> None:
    process = await shell.start("sleep", "60")
    await shell.engine.pause(shell.id)
    async with asyncio.timeout(2):
        await process.kill_tree()
    assert (await process.wait()).signal == 9
    await shell.engine.resume(shell.id)


async def test_paused_sandbox_can_be_destroyed(shell: Shell) -> None:
    await shell.start("sleep", "60")
    await shell.engine.pause(shell.id)
    await shell.engine.destroy(shell.id)
    await shell.engine.destroy(shell.id)
    with pytest.raises(NotFound):
        await shell.engine.state(shell.id)
