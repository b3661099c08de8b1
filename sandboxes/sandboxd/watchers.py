"""Watches on directories that clients poll, and those that they read as a stream."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from sandboxes.errors import NotFound, SandboxError
from sandboxes.sandboxd.engines.base import FileSystem

__all__ = ["EVENTS_KEPT", "PolledWatch", "Watch", "WatchBroken", "WatchEnded", "WatcherRegistry"]

EVENTS_KEPT = 10_000
"""A polled watch that nobody polls drops its oldest events past this."""


class WatchEnded(Exception):
    """The watched directory is gone, or cannot be watched any longer."""


class WatchBroken(Exception):
    """The sandbox is gone, or sandboxd is stopping."""


class Watch:
    """Events collect here from the moment `open` returned."""

    def __init__(self) -> None:
        self._events: list[tuple[str, str]] = []
        self._ready = asyncio.Event()
        self._ended: WatchEnded | WatchBroken | None = None

    def put(self, event: tuple[str, str]) -> None:
        # The kernel merges repeats that nobody has read yet; so do we, or how many of them a client
        # sees would hang on how fast we read.
        if self._events[-1:] == [event]:
            return
        self._events.append(event)
        if len(self._events) > EVENTS_KEPT:
            del self._events[0]
        self._ready.set()

    def end(self, reason: WatchEnded | WatchBroken) -> None:
        """The first reason counts."""
        self._ended = self._ended or reason
        self._ready.set()

    def take(self) -> list[tuple[str, str]]:
        events, self._events = self._events, []
        self._ready.clear()
        return events

    async def wait(self, timeout_s: float) -> list[tuple[str, str]]:
        """At least one event, or none after `timeout_s`. Raises the reason once there are no more."""
        if not self._events and self._ended is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._ready.wait()
        if self._events:
            return self.take()
        if self._ended is not None:
            raise self._ended
        return []


@dataclass(frozen=True, slots=True)
class PolledWatch:
    """`describe` asks for the entry with each event."""

    path: str
    describe: bool
    watch: Watch
    task: asyncio.Task[None]


class WatcherRegistry:
    def __init__(self) -> None:
        self._polled: dict[str, PolledWatch] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._watches: set[Watch] = set()

    async def create(self, files: FileSystem, path: str, *, recursive: bool, describe: bool) -> str:
        watch, task = await self._begin(files, path, recursive=recursive)
        watcher_id = secrets.token_hex(10)
        self._polled[watcher_id] = PolledWatch(path, describe, watch, task)
        return watcher_id

    def find(self, watcher_id: str) -> PolledWatch:
        try:
            return self._polled[watcher_id]
        except KeyError:
            raise NotFound(f"watcher {watcher_id} not found") from None

    async def remove(self, watcher_id: str) -> None:
        watcher = self.find(watcher_id)
        del self._polled[watcher_id]
        await _stop(watcher.task)

    @asynccontextmanager
    async def watching(
        self, files: FileSystem, path: str, *, recursive: bool
    ) -> AsyncIterator[Watch]:
        """For one stream: watching has begun when the block is entered."""
        watch, task = await self._begin(files, path, recursive=recursive)
        try:
            yield watch
        finally:
            await _stop(task)

    def close(self, message: str) -> None:
        """Idempotent."""
        for watch in self._watches:
            watch.end(WatchBroken(message))
        for task in list(self._tasks):
            task.cancel()
        self._polled.clear()

    async def _begin(
        self, files: FileSystem, path: str, *, recursive: bool
    ) -> tuple[Watch, asyncio.Task[None]]:
        watch = Watch()
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(_pump(watch, files, path, recursive, begun))
        self._tasks.add(task)
        self._watches.add(watch)

        def done(finished: asyncio.Task[None]) -> None:
            self._tasks.discard(finished)
            self._watches.discard(watch)

        task.add_done_callback(done)
        try:
            await begun
        except BaseException:
            task.cancel()
            raise
        return watch, task


async def _pump(
    watch: Watch, files: FileSystem, path: str, recursive: bool, begun: asyncio.Future[None]
) -> None:
    try:
        async with files.watch(path, recursive=recursive) as events:
            begun.set_result(None)
            async for event in events:
                watch.put(event)
        watch.end(WatchEnded("the watched directory is gone"))
    except SandboxError as error:
        if begun.done():
            watch.end(WatchEnded(error.message))
        else:
            begun.set_exception(error)
    except asyncio.CancelledError:
        begun.cancel()
        raise


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
