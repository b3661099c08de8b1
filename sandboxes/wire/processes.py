"""Commands and terminals in a sandbox, over envd's `process.Process`.

A disconnect does not end a process, so leaving a block early kills it by name: every start carries
a tag, by which it is found even if the caller was cancelled before its pid was known.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import uuid
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Self

import httpx

from sandboxes.client import Terminal
from sandboxes.errors import (
    Conflict,
    Internal,
    InvalidRequest,
    NotFound,
    SandboxError,
    TimedOut,
    Unavailable,
)
from sandboxes.types import (
    ExecEvent,
    ExecExit,
    ExecOutput,
    ExecRequest,
    ExecStarted,
    Sandbox,
    Stream,
)
from sandboxes.wire.connect import Code, ConnectError
from sandboxes.wire.envd import CALL_TIMEOUT_S, Envd, FrameStream
from sandboxes.wire.failures import from_connect, timed_out
from sandboxes.wire.signals import signal_number

__all__ = ["Processes"]

logger = logging.getLogger(__name__)

_SIGKILL_EXIT = 137
# The server kills at the deadline; if it has not said so by then, we do.
_DEADLINE_GRACE_S = 0.5
# Three of the keep-alives that we ask for.
_SILENCE_S = 150.0
_KILL_TIMEOUT_S = 5.0
_STDIN_CHUNK_BYTES = 192 * 1024
# A start that failed in one of these ways may have been carried out all the same.
_MAY_HAVE_STARTED = (TimedOut, Unavailable, Internal)
_KILL_ATTEMPTS, _KILL_PAUSE_S = 20, 0.1


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
        running = _Running(self._envd, "exec", sandbox, request.user, request.timeout_s)
        async with running.start(message):
            feeder = _Feeder(running, request.stdin)
            try:
                async with aclosing(_exec_events(running, feeder)) as events:
                    yield events
            finally:
                await feeder.stop()

    @asynccontextmanager
    async def terminal(
        self,
        sandbox: Sandbox,
        *,
        cols: int,
        rows: int,
        cwd: str | None,
        env: Mapping[str, str] | None,
        user: str,
    ) -> AsyncIterator[Terminal]:
        envs = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", **(env or {})}
        process: dict[str, Any] = {"cmd": "/bin/bash", "args": ["-i", "-l"], "envs": envs}
        if cwd is not None:
            process["cwd"] = cwd
        message = {"process": process, "pty": {"size": {"cols": cols, "rows": rows}}}
        running = _Running(self._envd, "terminal", sandbox, user, None)
        async with running.start(message):
            yield _Terminal(running)


class _Running:
    """One started process and its stream of events."""

    def __init__(
        self, envd: Envd, op: str, sandbox: Sandbox, user: str, timeout_s: float | None
    ) -> None:
        self._envd = envd
        self.op = op
        self.sandbox = sandbox
        self._user = user
        self._timeout_s = timeout_s
        self._tag = uuid.uuid4().hex
        self._loop = asyncio.get_running_loop()
        self._started_at = self._loop.time()
        self._over = False
        self._stream: FrameStream  # set once the server has taken the call
        self.pid: int | None = None

    @property
    def duration_s(self) -> float:
        return self._loop.time() - self._started_at

    @property
    def _overran(self) -> bool:
        """True once the process has outlived its deadline by our clock, which started first."""
        return self._timeout_s is not None and self.duration_s >= self._timeout_s

    @asynccontextmanager
    async def start(self, message: Mapping[str, Any]) -> AsyncIterator[Self]:
        """Returns once the process has its pid; leaving kills whatever of it still runs."""
        try:
            async with self._open(message):
                yield self
        finally:
            if not self._over:
                await self.kill()

    @asynccontextmanager
    async def _open(self, message: Mapping[str, Any]) -> AsyncIterator[None]:
        opened = False
        try:
            async with self._envd.open_stream(
                self.op,
                self.sandbox,
                "process.Process/Start",
                {**message, "tag": self._tag},
                user=self._user,
                timeout_s=self._timeout_s,
            ) as stream:
                await self._first_event(stream)
                opened = True
                yield
        except SandboxError as error:
            if not opened and not isinstance(error, _MAY_HAVE_STARTED):
                self._over = True
            raise

    async def _first_event(self, stream: FrameStream) -> None:
        self._stream = stream
        event = await self.next(by=self._started_at + CALL_TIMEOUT_S)
        if event is None:  # a deadline so short that the process was killed as it started
            return
        start = event.get("start")
        if not isinstance(start, dict) or not isinstance(start.get("pid"), int):
            raise self._envd.odd(self.op, event)
        self.pid = start["pid"]

    async def next(self, *, by: float | None = None) -> Mapping[str, Any] | None:
        """The next event but keep-alives, or None if the deadline killed the process."""
        while True:
            try:
                frame = await self._stream.next(by=self._wait_until(by))
            except TimeoutError as error:
                if self._overran:
                    await self._kill_or_fail()
                    return None
                if by is not None:
                    raise timed_out(self._envd.service, self.op) from error
                raise await self._lost("no sign of life") from error
            except httpx.HTTPError as error:
                raise await self._lost(f"{type(error).__name__}: {error}") from error
            except ConnectError as error:
                raise from_connect(self._envd.service, self.op, error) from error
            if frame is None:
                raise await self._lost("the stream was cut off")
            if frame.end:
                await self._ended(frame.message.get("error"))
                return None
            event = frame.message.get("event")
            if not isinstance(event, dict):
                raise self._envd.odd(self.op, frame.message)
            if "keepalive" not in event:
                return event

    def _wait_until(self, by: float | None) -> float:
        limits = [self._loop.time() + _SILENCE_S]
        if by is not None:
            limits.append(by)
        if self._timeout_s is not None:
            limits.append(self._started_at + self._timeout_s + _DEADLINE_GRACE_S)
        return min(limits)

    async def _ended(self, error: object) -> None:
        """The stream's own end, before the process reported one. Returns if that is the deadline's
        doing."""
        if not isinstance(error, dict):
            raise await self._lost("the stream ended without the command's end")
        failure = ConnectError.from_json(error)
        if failure.code is Code.DEADLINE_EXCEEDED and self._overran:
            await self._kill_or_fail()
            return
        lost = await self._envd.failure(self.op, self.sandbox, failure)
        self._over = lost.gone
        raise lost

    async def _kill_or_fail(self) -> None:
        """At the deadline: what is not known to be dead is not reported as killed."""
        if not await self.kill():
            raise await self._lost("it ran past its deadline and could not be killed")

    async def _lost(self, detail: str) -> SandboxError:
        lost = await self._envd.lost(self.op, self.sandbox, detail)
        self._over = lost.gone  # the sandbox took the process with it
        return lost

    async def exit(self, end: Mapping[str, Any] | None) -> ExecExit:
        """What the `end` event says; None is the deadline's."""
        self._over = True
        if end is None:
            return ExecExit(exit_code=_SIGKILL_EXIT, killed=True, duration_s=self.duration_s)
        await self._stream.finish(within_s=_DEADLINE_GRACE_S)
        signal = signal_number(str(end.get("status") or end.get("error") or ""))
        # proto3 JSON leaves a zero out.
        code = 128 + signal if signal is not None else int(end.get("exitCode") or 0)
        killed = code == _SIGKILL_EXIT and self._overran
        return ExecExit(exit_code=code, killed=killed, duration_s=self.duration_s)

    @property
    def selector(self) -> dict[str, Any]:
        return {"tag": self._tag} if self.pid is None else {"pid": self.pid}

    async def ask(self, method: str, message: Mapping[str, Any]) -> None:
        await self._envd.call(
            self.op,
            self.sandbox,
            f"process.Process/{method}",
            {"process": self.selector, **message},
            user=self._user,
        )

    async def kill(self) -> bool:
        """SIGKILL to the whole tree. Never raises, because the caller already has its outcome;
        False if it may still run."""
        try:
            async with asyncio.timeout(_KILL_TIMEOUT_S):
                return await self._kill()
        except TimeoutError:
            logger.warning("Killing a command took too long", extra=self._where)
        except SandboxError as error:
            logger.warning("Could not kill a command: %s", error.detail, extra=self._where)
        return False

    async def _kill(self) -> bool:
        for _ in range(_KILL_ATTEMPTS):
            try:
                await self.ask("SendSignal", {"signal": "SIGNAL_SIGKILL"})
            except NotFound:
                if self.pid is not None:
                    return True
                # It may not have started yet.
                await asyncio.sleep(_KILL_PAUSE_S)
            else:
                return True
        return True

    @property
    def _where(self) -> dict[str, str]:
        return {"sandbox_id": self.sandbox.id, "provider": self._envd.service.provider}


async def _exec_events(running: _Running, feeder: _Feeder) -> AsyncGenerator[ExecEvent, None]:
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

    def __init__(self, running: _Running, stdin: bytes | AsyncIterable[bytes] | None) -> None:
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


class _Terminal(Terminal):
    def __init__(self, running: _Running) -> None:
        self._running = running

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (event := await self._running.next()) is not None:
            if (end := event.get("end")) is not None:
                await self._running.exit(end)
                return
            if data := event.get("data", {}).get("pty"):
                yield base64.b64decode(data)

    async def write(self, data: bytes) -> None:
        piece = base64.b64encode(data).decode()
        await self._running.ask("SendInput", {"input": {"pty": piece}})

    async def resize(self, *, cols: int, rows: int) -> None:
        await self._running.ask("Update", {"pty": {"size": {"cols": cols, "rows": rows}}})
