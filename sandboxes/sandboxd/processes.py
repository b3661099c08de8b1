"""The processes of one sandbox that clients started: their output fans out to any number of them.

Back-pressure: each attached client has a bounded buffer, and the slowest one sets the pace of the
process. With nobody attached the process runs on and the last `HELD_BYTES` of its output wait for
the next client. A process that ended stays findable for `LINGER_S`, so that a late client learns
how it ended.
"""

from __future__ import annotations

import asyncio
import logging
import signal as signals
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sandboxes.errors import NotFound, SandboxError
from sandboxes.sandboxd.engines.base import ExitStatus, RunningProcess
from sandboxes.wire.messages import ProcessConfig, ProcessSelector

__all__ = [
    "BUFFER_BYTES",
    "HELD_BYTES",
    "LINGER_S",
    "Ended",
    "Event",
    "Gone",
    "ManagedProcess",
    "Output",
    "Overran",
    "ProcessRegistry",
    "Subscription",
]

BUFFER_BYTES = 1024 * 1024
HELD_BYTES = 64 * 1024
LINGER_S = 30.0
_KILL_GRACE_S = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Output:
    """`stream` is stdout, stderr or terminal."""

    stream: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    status: ExitStatus


@dataclass(frozen=True, slots=True)
class Overran:
    """Killed at its deadline."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The sandbox itself is no more, or sandboxd is stopping."""

    message: str


Event = Output | Ended | Overran | Gone


class Subscription:
    """One client's view of a process, from where it attached. The last event is not an Output."""

    def __init__(self, room: asyncio.Event) -> None:
        self._room = room
        self._events: deque[Event] = deque()
        self._size_bytes = 0
        self._ready = asyncio.Event()

    @property
    def full(self) -> bool:
        return self._size_bytes >= BUFFER_BYTES

    def put(self, event: Event) -> None:
        self._events.append(event)
        if isinstance(event, Output):
            self._size_bytes += len(event.data)
        self._ready.set()

    async def next(self, timeout_s: float | None = None) -> Event:
        """Raises TimeoutError when nothing happened for so long."""
        while not self._events:
            self._ready.clear()
            async with asyncio.timeout(timeout_s):
                await self._ready.wait()
        event = self._events.popleft()
        if isinstance(event, Output):
            self._size_bytes -= len(event.data)
            if not self.full:
                self._room.set()
        return event


class ManagedProcess:
    def __init__(
        self,
        running: RunningProcess,
        *,
        config: ProcessConfig,
        terminal: bool,
        tag: str | None,
        timeout_s: float | None,
        sandbox_died: Callable[[], Awaitable[bool]],
    ) -> None:
        self.pid = running.pid
        self.config = config
        self.terminal = terminal
        self.tag = tag
        self.running = running
        self.final: Ended | Overran | Gone | None = None
        self.ended_at: float | None = None
        self._sandbox_died = sandbox_died
        self._kill_requested = False
        self._overran = False
        self._subscriptions: set[Subscription] = set()
        self._held: deque[Output] = deque()
        self._held_bytes = 0
        self._room = asyncio.Event()
        self._remaining_s = timeout_s
        self._armed_at = 0.0
        self._deadline: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        """Start reading its output. Attach the first client before this: it misses nothing then."""
        self.resume_deadline()
        self._spawn(self._pump())

    @contextmanager
    def attach(self) -> Iterator[Subscription]:
        subscription = Subscription(self._room)
        for output in self._held:
            subscription.put(output)
        self._held.clear()
        self._held_bytes = 0
        if self.final is not None:
            subscription.put(self.final)
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            self._room.set()

    async def kill_tree(self) -> None:
        self._kill_requested = True
        await self.running.kill_tree()

    async def signal(self, number: int) -> None:
        """SIGKILL reaches the whole tree, any other signal this process alone."""
        if number == signals.SIGKILL:
            await self.kill_tree()
        else:
            await self.running.signal(number)

    def pause_deadline(self) -> None:
        """While its sandbox is paused a process uses up none of its time."""
        if self._deadline is not None and self._remaining_s is not None:
            self._deadline.cancel()
            self._deadline = None
            self._remaining_s -= time.monotonic() - self._armed_at

    def resume_deadline(self) -> None:
        if self._remaining_s is not None and self._deadline is None and self.final is None:
            self._armed_at = time.monotonic()
            delay = max(self._remaining_s, 0.0)
            self._deadline = asyncio.get_running_loop().call_later(delay, self._on_deadline)

    def finish(self, event: Ended | Overran | Gone) -> None:
        """The first outcome counts."""
        if self.final is not None:
            return
        self.final = event
        self.ended_at = time.monotonic()
        if self._deadline is not None:
            self._deadline.cancel()
        for subscription in self._subscriptions:
            subscription.put(event)

    def abandon(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    def _on_deadline(self) -> None:
        self._overran = self._kill_requested = True
        self._spawn(self._overrun())

    async def _overrun(self) -> None:
        kill = asyncio.ensure_future(self.running.kill_tree())
        await asyncio.wait({kill}, timeout=_KILL_GRACE_S)
        self.finish(Overran())
        try:
            await kill
        except SandboxError as error:
            log.warning("process %s could not be killed at its deadline: %s", self.pid, error)

    async def _pump(self) -> None:
        try:
            async for stream, data in self.running.output():
                await self._publish(Output(stream, data))
            status = await self.running.wait()
        except SandboxError as error:
            self.finish(Gone(error.message))
            return
        killed_by_others = status.signal == signals.SIGKILL and not self._kill_requested
        if killed_by_others and await self._sandbox_died():
            return
        if not self._overran:
            self.finish(Ended(status))

    async def _publish(self, output: Output) -> None:
        if not self._subscriptions:
            self._hold(output)
            return
        for subscription in self._subscriptions:
            subscription.put(output)
        while any(subscription.full for subscription in self._subscriptions):
            self._room.clear()
            await self._room.wait()

    def _hold(self, output: Output) -> None:
        self._held.append(output)
        self._held_bytes += len(output.data)
        while self._held_bytes > HELD_BYTES and len(self._held) > 1:
            self._held_bytes -= len(self._held.popleft().data)

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class ProcessRegistry:
    """Keyed by the pid inside the sandbox."""

    def __init__(self, sandbox_died: Callable[[], Awaitable[bool]]) -> None:
        self._sandbox_died = sandbox_died
        self._processes: dict[int, ManagedProcess] = {}
        self._closed: Gone | None = None

    def add(
        self,
        running: RunningProcess,
        *,
        config: ProcessConfig,
        terminal: bool,
        tag: str | None,
        timeout_s: float | None,
    ) -> ManagedProcess:
        """Not reading yet: attach, then `begin`."""
        self._forget_old()
        process = ManagedProcess(
            running,
            config=config,
            terminal=terminal,
            tag=tag,
            timeout_s=timeout_s,
            sandbox_died=self._sandbox_died,
        )
        self._processes[process.pid] = process
        if self._closed is not None:
            process.finish(self._closed)
        return process

    def live(self) -> list[ManagedProcess]:
        return [process for process in self._processes.values() if process.final is None]

    def find(self, selector: ProcessSelector, *, ended: bool = False) -> ManagedProcess:
        """NotFound unless it runs; with `ended`, also one that ended a moment ago."""
        self._forget_old()
        pid, tag = selector.get("pid"), selector.get("tag")
        for process in reversed(list(self._processes.values())):
            named = process.pid == pid if pid is not None else tag and process.tag == tag
            if named and (ended or process.final is None):
                return process
        name = f"pid {pid}" if pid is not None else f"tag “{tag}”"
        raise NotFound(f"process with {name} not found")

    def pause_deadlines(self) -> None:
        for process in self.live():
            process.pause_deadline()

    def resume_deadlines(self) -> None:
        for process in self.live():
            process.resume_deadline()

    def close(self, message: str) -> None:
        """End every stream, without an exit: nobody knows how the processes ended. Idempotent."""
        self._closed = Gone(message)
        for process in self._processes.values():
            process.finish(self._closed)
            process.abandon()

    def _forget_old(self) -> None:
        horizon = time.monotonic() - LINGER_S
        for pid, process in list(self._processes.items()):
            if process.ended_at is not None and process.ended_at < horizon:
                del self._processes[pid]
