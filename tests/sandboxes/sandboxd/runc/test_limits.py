"""Memory, process and CPU limits hold, and what is used is told."""

from __future__ import annotations

import asyncio
import time

import pytest

from sandboxes.errors import Capacity
from sandboxes.sandboxd.engines.base import ExitStatus, Limits
from tests.sandboxes.sandboxd.runc.conftest import Create

pytestmark = pytest.mark.sandbox

_MB = 1024**2


async def test_too_much_memory_kills_the_process_not_the_sandbox(create: Create) -> None:
    shell = await create(limits=Limits(memory_bytes=64 * _MB))
    done = await shell.run("python3", "-c", "x = b'1' * 200_000_000")
    assert done.exit == ExitStatus(signal=9)
    assert (await shell.run("echo", "alive")).stdout == "alive\n"


async def test_too_many_processes_can_not_be_forked(create: Create) -> None:
    shell = await create(limits=Limits(pids=20))
    done = await shell.sh("for i in $(seq 40); do sleep 5 & done; kill $(jobs -p)")
    assert "fork" in done.stderr


async def test_full_sandbox_refuses_more_commands_with_capacity(create: Create) -> None:
    shell = await create(limits=Limits(pids=8))
    for _ in range(6):
        await shell.start("sleep", "60")
    with pytest.raises(Capacity):
        await asyncio.gather(*(shell.start("sleep", "60") for _ in range(3)))


async def test_cpu_quota(create: Create) -> None:
    shell = await create(limits=Limits(cpus=0.2))
    began = time.monotonic()
    done = await shell.run("python3", "-c", "import time\nwhile time.process_time() < 0.3: pass")
    assert done.code == 0
    assert time.monotonic() - began > 0.9


async def test_usage(create: Create) -> None:
    shell = await create(limits=Limits(memory_bytes=256 * _MB, cpus=1.0))
    process = await shell.start(
        "python3", "-c", "x = b'1' * 50_000_000\nprint(1, flush=True)\nwhile True: pass"
    )
    await anext(process.output())
    before = await shell.engine.usage(shell.id)
    await asyncio.sleep(0.5)
    usage = await shell.engine.usage(shell.id)
    await process.kill_tree()
    assert usage.memory_total_bytes == 256 * _MB
    assert 50_000_000 < usage.memory_used_bytes < 120 * _MB
    assert usage.cpu_count == 1
    assert 5 < usage.cpu_used_pct <= 110
    assert 0 < usage.disk_used_bytes < usage.disk_total_bytes
    assert before.memory_used_bytes > 0


async def test_no_limits(create: Create) -> None:
    shell = await create(limits=Limits(memory_bytes=None, pids=None, cpus=None))
    usage = await shell.engine.usage(shell.id)
    assert usage.memory_total_bytes > 512 * _MB
    assert (await shell.run("true")).code == 0


async def test_one_sandbox_can_not_use_up_the_file_watches_of_all(create: Create) -> None:
    greedy, other = await create(), await create()
    script = (
        "import ctypes, time; libc = ctypes.CDLL(None); n = 0\n"
        "while libc.inotify_init() >= 0: n += 1\n"
        "print(n, flush=True); time.sleep(60)"
    )
    process = await greedy.start("python3", "-c", script)
    assert int((await anext(process.output()))[1]) <= 128
    done = await other.run("python3", "-c", script.replace("60", "0"))
    assert int(done.stdout) == 128
    async with other.engine.files(other.id).watch("/tmp", recursive=False):
        pass
    await process.kill_tree()
