"""A process in a sandbox, over envd's `process.Process`.

A disconnect does not end a process, so leaving a block early kills it by name: every start carries
a tag, by which it is found even if the caller was cancelled before its pid was known.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self

import httpx

from sandboxes.errors import Internal, NotFound, SandboxError, TimedOut, Unavailable
from sandboxes.types import ExecExit, Sandbox
from sandboxes.wire.connect import Code, ConnectError
from sandboxes.wire.envd import CALL_TIMEOUT_S, Envd, FrameStream
from sandboxes.wire.failures import from_connect, timed_out
from sandboxes.wire.signals import signal_number

__all__ = ["Running"]

logger = logging.getLogger(__name__)

_SIGKILL_EXIT = 137
# The server kills at the deadline; if it has not said so by then, we do.
_DEADLINE_GRACE_S = 0.5
# Three of the keep-alives that we ask for.
_SILENCE_S = 150.0
_KILL_TIMEOUT_S = 5.0
# A start that failed in one of these ways may have been carried out all the same.
_MAY_HAVE_STARTED = (TimedOut, Unavailable, Internal)
_KILL_ATTEMPTS, _KILL_PAUSE_S = 20, 0.1


class Running:
    """One process of envd and our stream of its events: started here, or attached to."""

    def __init__(
        self,
        envd: Envd,
        op: str,
        sandbox: Sandbox,
        user: str,
        timeout_s: float | None,
        *,
        tag: str | None = None,
    ) -> None:
        self._envd = envd
        self.op = op
        self.sandbox = sandbox
        self._user = user
        self._timeout_s = timeout_s
        self._tag = tag or uuid.uuid4().hex
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
    async def start(
        self, message: Mapping[str, Any], *, lasting: bool = False
    ) -> AsyncIterator[Self]:
        """Returns once the process has its pid; leaving kills whatever of it still runs, unless it is
        `lasting` and had started."""
        try:
            async with self._open("Start", {**message, "tag": self._tag}):
                yield self
        finally:
            if not self._over and not (lasting and self.pid is not None):
                await self.kill()

    @asynccontextmanager
    async def attach(self) -> AsyncIterator[Self]:
        """The process that carries our tag, which runs on when this is left. NotFound."""
        async with self._open("Connect", {"process": self.selector}):
            yield self

    @asynccontextmanager
    async def _open(self, method: str, message: Mapping[str, Any]) -> AsyncIterator[None]:
        opened = False
        try:
            async with self._envd.open_stream(
                self.op,
                self.sandbox,
                f"process.Process/{method}",
                message,
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
