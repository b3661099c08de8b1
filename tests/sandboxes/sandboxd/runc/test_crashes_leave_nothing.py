"""kill -9 of sandboxd, or of runc under it, at any moment: the next start leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

from sandboxes.errors import Internal, SandboxError
from sandboxes.network import CLOSED
from sandboxes.sandboxd.engines.base import EngineSandboxState, Limits, SandboxSpec
from sandboxes.sandboxd.engines.runc.engine import RuncEngine
from tests.leaks import leaks
from tests.sandboxes.sandboxd.runc.conftest import TEMPLATES_DIR, OwnEngine, create_in, new_id
from tests.sandboxes.sandboxd.runc.shell import Shell

pytestmark = [pytest.mark.sandbox, pytest.mark.slow]

_ROUNDS = int(os.environ.get("SKILLYARD_CRASH_ROUNDS", "12"))

_WORKER = """
import asyncio, secrets, sys
from pathlib import Path
from sandboxes.network import CLOSED, OPEN
from sandboxes.sandboxd.engines.base import Limits, ProcessSpec, SandboxSpec
from sandboxes.sandboxd.engines.runc.engine import RuncEngine

async def one(engine, image, network):
    id = "c" + secrets.token_hex(10)[:19]
    await engine.create(SandboxSpec(id=id, image=image, network=network, limits=Limits()))
    process = await engine.spawn(id, ProcessSpec(
        argv=["sh", "-c", "head -c 3000000 /dev/zero > /tmp/f; setsid sleep 500 & sleep 0.01"], user="root"))
    await process.wait()
    await engine.pause(id)
    await engine.resume(id)
    await engine.snapshot(id, "snap-" + secrets.token_hex(10))
    await engine.destroy(id)

async def main(data_dir, templates_dir, image):
    engine = RuncEngine(data_dir=Path(data_dir), templates_dir=Path(templates_dir))
    await engine.start()
    print("up", flush=True)
    async def loop(network):
        while True:
            await one(engine, image, network)
    await asyncio.gather(loop(CLOSED), loop(OPEN), loop(CLOSED))

asyncio.run(main(*sys.argv[1:]))
"""


async def test_sandboxd_killed_at_random_moments(data_dir: Path, image: str) -> None:
    seed = int(time.time())
    rng = random.Random(seed)  # noqa: S311
    for n in range(_ROUNDS):
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _WORKER, str(data_dir), str(TEMPLATES_DIR), image),
            stdout=asyncio.subprocess.PIPE,
        )
        assert worker.stdout is not None
        assert await worker.stdout.readline() == b"up\n", f"round {n}, seed {seed}"
        await asyncio.sleep(rng.uniform(0.0, 0.8))
        worker.send_signal(signal.SIGKILL)
        await worker.wait()
    engine = RuncEngine(data_dir=data_dir, templates_dir=TEMPLATES_DIR)
    for adopted in await engine.start():
        assert adopted.state is not EngineSandboxState.DEAD
        shell = Shell(engine, adopted.id)
        if adopted.state is EngineSandboxState.PAUSED:
            await engine.resume(adopted.id)
        assert (await shell.run("echo", "alive")).stdout == "alive\n"
        await engine.destroy(adopted.id)
    for snapshot in await engine.snapshots():
        shell = await create_in(engine, snapshot.id)
        assert (await shell.sh("wc -c < /tmp/f")).stdout == "3000000\n"
        await engine.destroy(shell.id)
        await engine.delete_snapshot(snapshot.id)
    await engine.settled()
    await engine.aclose()
    assert leaks(data_dir) == [], f"seed {seed}"
    assert list((data_dir / "snapshots").iterdir()) == []


async def test_runc_killed_while_it_starts_or_ends_a_sandbox(
    own_engine: OwnEngine, image: str
) -> None:
    rng = random.Random(4)  # noqa: S311
    async with own_engine() as engine:
        failures = 0
        for _ in range(_ROUNDS):
            hunt = asyncio.create_task(_kill_a_runc(engine.data_dir, rng.uniform(0.0, 0.03)))
            try:
                shell = await create_in(engine, image)
                await engine.destroy(shell.id)
            except SandboxError:
                failures += 1
                for sandbox_id in engine.sandbox_ids():
                    await engine.destroy(sandbox_id)
            hunt.cancel()
            await asyncio.wait([hunt])
        assert failures > 0, "no runc was hit"
        await engine.settled()


async def _kill_a_runc(data_dir: Path, delay_s: float) -> None:
    while (pid := _find_runc(data_dir)) is None:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.001)
    await asyncio.sleep(delay_s)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _find_runc(data_dir: Path) -> int | None:
    for folder in Path("/proc").iterdir():
        try:
            argv = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if argv[:1] == [b"runc"] and str(data_dir).encode() in b" ".join(argv):
            return int(folder.name)
    return None


async def test_cancelled_creates_leave_nothing(own_engine: OwnEngine, image: str) -> None:
    async with own_engine() as engine:
        for n in range(_ROUNDS):
            task = asyncio.create_task(create_in(engine, image))
            await asyncio.sleep(n % 20 * 0.004)
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                await engine.destroy(task.result().id)
            assert engine.sandbox_ids() == []
        await engine.settled()


async def test_failed_create_leaves_nothing(own_engine: OwnEngine, image: str) -> None:
    async with own_engine() as engine:
        limits = Limits(memory_bytes=4096)
        with pytest.raises(Internal):
            await engine.create(
                SandboxSpec(id=new_id(), image=image, network=CLOSED, limits=limits)
            )
        assert engine.sandbox_ids() == []
