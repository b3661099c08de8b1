"""Commands in a sandbox, over envd's `process.Process`."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from sandboxes.errors import Conflict, Internal, InvalidRequest, NotFound, SandboxError
from sandboxes.types import (
    ExecEvent,
    ExecOutput,
    ExecRequest,
    ExecStarted,
    Sandbox,
    Stream,
)
from sandboxes.wire.envd import Envd
from sandboxes.wire.running import Running

__all__ = ["Processes"]

_STDIN_CHUNK_BYTES = 192 * 1024


class Processes:
    def __init__(self, envd: Envd) -> None:
        self._envd = envd

    @asynccontextmanager
    async def exec(
        self, sandbox: Sandbox, request: ExecRequest
    ) -> AsyncIterator[AsyncIterator[ExecEvent]]:
        process: dict[str, Any] = {
            "cmd": request.argv[0],
            "args": list(request.argv[1:]),
            "envs": dict(request.env),
        }
        if request.cwd is not None:
            process["cwd"] = request.cwd
        message = {"process": process, "stdin": request.stdin is not None}
        running = Running(self._envd, "exec", sandbox, request.user, request.timeout_s)
        async with running.start(message):
            feeder = _Feeder(running, request.stdin)
            try:
                async with aclosing(_exec_events(running, feeder)) as events:
                    yield events
            finally:
                await feeder.stop()


async def _exec_events(running: Running, feeder: _Feeder) -> AsyncGenerator[ExecEvent, None]:
    if running.pid is None:
        yield ExecStarted(pid=0)
        yield await running.exit(None)
        return
    yield ExecStarted(pid=running.pid)
    feeder.begin()
    while True:
        try:
            event = await running.next()
        except SandboxError:
            feeder.raise_failure()
            raise
        feeder.raise_failure()
        if event is None:
            yield await running.exit(None)
            return
        if (end := event.get("end")) is not None:
            yield await running.exit(end)
            return
        for stream in Stream:
            if data := event.get("data", {}).get(stream.value):
                yield ExecOutput(stream=stream, data=base64.b64decode(data))


class _Feeder:
    """Sends a command's input while its output is read, so that neither waits for the other."""

    def __init__(self, running: Running, stdin: bytes | AsyncIterable[bytes] | None) -> None:
        self._running = running
        self._stdin = stdin
        self._task: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None

    def begin(self) -> None:
        if self._stdin is not None:
            self._task = asyncio.create_task(self._feed(self._stdin))

    async def _feed(self, stdin: bytes | AsyncIterable[bytes]) -> None:
        try:
            if isinstance(stdin, bytes):
                await self._send(stdin)
            else:
                async for chunk in stdin:
                    await self._send(chunk)
            await self._running.ask("CloseStdin", {})
        except (NotFound, Conflict, InvalidRequest, Internal):
            # It exited, or closed its input: commands need not read all they are given.
            return
        except Exception as error:  # the caller's own iterable may raise anything
            self._failure = error
            await self._running.kill()

    async def _send(self, data: bytes) -> None:
        view = memoryview(data)
        for start in range(0, len(view), _STDIN_CHUNK_BYTES):
            piece = base64.b64encode(view[start : start + _STDIN_CHUNK_BYTES]).decode()
            await self._running.ask("SendInput", {"input": {"stdin": piece}})

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
