"""kill_tree ends a command and all that came of it, and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from sandboxes.sandboxd.engines.base import ExitStatus
from tests.sandboxes.sandboxd.runc.shell import Shell

pytestmark = pytest.mark.sandbox

_DAEMONS = """
sleep 7001 &
setsid sleep 7002 &
(setsid sh -c 'setsid sleep 7003 & sleep 7004' &)
python3 -c '
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 10)
        os.execvp("sleep", ["sleep", "7005"])
    os._exit(0)
'
sleep 0.2
echo ready
sleep 7000
"""


async def test_daemonised_children_die_too(shell: Shell) -> None:
    other = await shell.start("sleep", "6000")
    process = await shell.start("bash", "-c", _DAEMONS)
    assert await anext(process.output()) == ("stdout", b"ready\n")
    listed = (await shell.run("ps", "axo", "args")).stdout
    assert all(f"sleep 700{n}" in listed for n in range(6))

    async with asyncio.timeout(1):
        await process.kill_tree()

    listed = (await shell.run("ps", "axo", "stat,args")).stdout
    assert "sleep 70" not in listed
    assert " Z" not in f" {listed}"
    assert "sleep 6000" in listed
    assert await process.wait() == ExitStatus(signal=9)
    await process.kill_tree()
    await other.kill_tree()


async def test_children_of_a_finished_command_can_still_be_killed(shell: Shell) -> None:
    process = await shell.start("sh", "-c", "setsid sleep 7100 & exit 0")
    assert (await process.wait()).code == 0
    assert "sleep 7100" in (await shell.run("ps", "ax")).stdout
    await process.kill_tree()
    assert "sleep 7100" not in (await shell.run("ps", "ax")).stdout


async def test_fork_bomb_is_killed(shell: Shell) -> None:
    process = await shell.start(
        "bash", "-c", "bomb() { bomb | bomb & }; bomb; sleep 100", user="user"
    )
    await asyncio.sleep(0.5)
    async with asyncio.timeout(10):
        await process.kill_tree()
    assert (await shell.run("true")).code == 0


async def test_init_can_not_be_killed_from_inside(shell: Shell) -> None:
    await shell.sh("kill -9 -1; kill -9 1; kill -STOP 1")
    assert (await shell.run("echo", "alive")).stdout == "alive\n"


async def test_orphans_are_reaped(shell: Shell) -> None:
    for _ in range(5):
        await shell.sh("(sleep 0.01 &) ; (setsid true &)")
    await asyncio.sleep(0.2)
    assert "Z" not in (await shell.run("ps", "axo", "stat")).stdout.split()
