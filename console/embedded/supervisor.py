"""Start processes in order, keep them running, stop them in the reverse order.

A process that exits is started again after a pause that doubles up to 30 s and falls back once it
has stayed up for a minute. Output goes to one log file a process, with the time before each line.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from console.embedded.errors import CannotStart

__all__ = ["Child", "Supervisor"]

_SHORTEST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_STEADY_AFTER_S = 60.0
_LOG_BYTES = 10_000_000
_TAIL_LINES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """`ready` answers whether it serves; None is ready at once. `stop` is what to send and how long
    to wait after each; SIGKILL follows."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    ready: Callable[[], Awaitable[bool]] | None = None
    ready_timeout_s: float = 60.0
    stop: Sequence[tuple[signal.Signals, float]] = ((signal.SIGTERM, 5.0),)
    pass_fds: Sequence[int] = ()


@dataclass(slots=True)
class _Running:
    child: Child
    process: asyncio.subprocess.Process
    log: asyncio.Task[None]
    started_at: float
    tail: list[str] = field(default_factory=list)


class Supervisor:
    """`announce` gets one line for a person whenever something happened."""

    def __init__(self, *, logs: Path, announce: Callable[[str], None]) -> None:
        self._logs = logs
        self._announce = announce
        self._running: dict[str, _Running] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._stopping = False

    async def start(self, child: Child) -> float:
        """Start it, wait until it is ready, keep it running; returns the seconds that took.

        CannotStart, with its last words, if it exits or is not ready in time.
        """
        begun = time.monotonic()
        running = await self._spawn(child)
        try:
            await self._await_ready(running)
        except BaseException:
            await self._end(running)
            raise
        self._keepers.append(asyncio.create_task(self._keep(running)))
        return time.monotonic() - begun

    async def run_once(self, child: Child) -> None:
        """Run it to its end. CannotStart, with its last words, unless it exits with 0."""
        running = await self._spawn(child)
        code = await running.process.wait()
        await running.log
        del self._running[child.name]
        if code != 0:
            raise CannotStart(self._last_words(running, f"exited with {code}"))

    async def stop(self) -> None:
        """In reverse order of their start. Returns when none is left."""
        self._stopping = True
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        for running in reversed(list(self._running.values())):
            await self._end(running)

    async def _spawn(self, child: Child) -> _Running:
        try:
            process = await asyncio.create_subprocess_exec(
                *child.argv,
                env=dict(child.env),
                cwd=child.cwd,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the supervisor, which stops them in order
                pass_fds=child.pass_fds,
                limit=1_000_000,
            )
        except FileNotFoundError as error:
            raise CannotStart(f"{child.name} cannot start: {error}.") from error
        running = _Running(child, process, asyncio.create_task(_nothing()), time.monotonic())
        running.log = asyncio.create_task(self._write_log(running))
        self._running[child.name] = running
        return running

    async def _await_ready(self, running: _Running) -> None:
        child = running.child
        if child.ready is None:
            return
        ready = asyncio.create_task(_until(child.ready))
        exited = asyncio.create_task(running.process.wait())
        try:
            await asyncio.wait(
                [ready, exited],
                timeout=child.ready_timeout_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if ready.done():
                return
            if not exited.done():
                waited = f"was not ready after {child.ready_timeout_s:.0f} s"
                raise CannotStart(self._last_words(running, waited))
            await running.log
            raise CannotStart(self._last_words(running, f"exited with {exited.result()}"))
        finally:
            for task in (ready, exited):
                task.cancel()

    async def _keep(self, running: _Running) -> None:
        pause = _SHORTEST_PAUSE_S
        while True:
            code = await running.process.wait()
            if time.monotonic() - running.started_at > _STEADY_AFTER_S:
                pause = _SHORTEST_PAUSE_S
            name = running.child.name
            self._announce(f"{name} exited with {code}; starting it again in {pause:.1f} s")
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)
            spawning = asyncio.create_task(self._spawn(running.child))
            try:
                running = await asyncio.shield(spawning)
            except asyncio.CancelledError:
                await spawning  # so that `stop` knows of it
                raise

    async def _end(self, running: _Running) -> None:
        process = running.process
        for number, patience_s in running.child.stop:
            if process.returncode is not None:
                break
            process.send_signal(number)
            try:
                await asyncio.wait_for(process.wait(), patience_s)
            except TimeoutError:
                continue
        if process.returncode is None:
            process.kill()
            await process.wait()
        # A grandchild may hold the pipe open; its output is of no further interest.
        _, pending = await asyncio.wait([running.log], timeout=1)
        for task in pending:
            task.cancel()
        self._running.pop(running.child.name, None)

    async def _write_log(self, running: _Running) -> None:
        output = running.process.stdout
        if output is None:
            return
        with _LogFile(self._logs / f"{running.child.name}.log") as log:
            while True:
                try:
                    line = await output.readline()
                except ValueError:  # a line longer than the limit
                    continue
                if not line:
                    return
                text = line.decode(errors="replace").rstrip("\n")
                log.write(text)
                running.tail = [*running.tail[-_TAIL_LINES:], text]

    def _last_words(self, running: _Running, what: str) -> str:
        name = running.child.name
        words = "\n  ".join(running.tail) or "(it said nothing)"
        return f"{name} {what}; its last words (all in {self._logs / f'{name}.log'}):\n  {words}"


class _LogFile:
    """Appends lines with their time; past `_LOG_BYTES` it begins anew and keeps one old file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("a", buffering=1, errors="replace")

    def __enter__(self) -> _LogFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, text: str) -> None:
        if self._file.tell() > _LOG_BYTES:
            self._file.close()
            self._path.rename(self._path.with_suffix(".log.1"))
            self._file = self._path.open("a", buffering=1, errors="replace")
        stamp = datetime.now().astimezone().isoformat(timespec="milliseconds")
        self._file.write(f"{stamp} {text}\n")


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    while not await condition():  # noqa: ASYNC110 - another process is asked; nothing sets an event
        await asyncio.sleep(0.03)


async def _nothing() -> None:
    return None
