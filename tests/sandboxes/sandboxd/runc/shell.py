"""Short ways to run something in a sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from sandboxes.sandboxd.engines.base import Engine, ExitStatus, ProcessSpec, RunningProcess


@dataclass(frozen=True)
class Done:
    stdout: str
    stderr: str
    exit: ExitStatus

    @property
    def code(self) -> int | None:
        return self.exit.code


@dataclass(frozen=True)
class Shell:
    engine: Engine
    id: str

    async def start(
        self, *argv: str, user: str = "root", stdin: bool = False, cwd: str | None = None
    ) -> RunningProcess:
        spec = ProcessSpec(argv=argv, user=user, stdin=stdin, cwd=cwd)
        return await self.engine.spawn(self.id, spec)

    async def run(
        self,
        *argv: str,
        user: str = "root",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Done:
        spec = ProcessSpec(argv=argv, user=user, cwd=cwd, env=env or {})
        return await finish(await self.engine.spawn(self.id, spec))

    async def sh(self, script: str, *, user: str = "root") -> Done:
        return await self.run("/bin/bash", "-c", script, user=user)


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float = 10) -> None:
    async with asyncio.timeout(timeout_s):
        while not await condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


async def finish(process: RunningProcess) -> Done:
    collected = {"stdout": b"", "stderr": b"", "terminal": b""}
    async for stream, data in process.output():
        collected[stream] += data
    exit_status = await process.wait()
    stdout = collected["stdout"] + collected["terminal"]
    return Done(stdout.decode(), collected["stderr"].decode(), exit_status)
