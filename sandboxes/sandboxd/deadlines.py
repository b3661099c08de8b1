"""One scheduler for the deadlines of all sandboxes."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

__all__ = ["Deadlines"]

_LONGEST_SLEEP_S = 30.0
"""Deadlines are wall-clock times; looking this often bounds what a jump of the clock can do."""


class Deadlines:
    """Calls `expire(key)` soon after each key's time. Setting a key again replaces its time; a key
    that fires is forgotten. `expire` must not raise."""

    def __init__(self, expire: Callable[[str], Awaitable[None]]) -> None:
        self._expire = expire
        self._at: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._changed = asyncio.Event()
        self._firing: set[asyncio.Task[None]] = set()

    def set(self, key: str, at: float) -> None:
        self._at[key] = at
        heapq.heappush(self._heap, (at, key))
        self._changed.set()

    def clear(self, key: str) -> None:
        self._at.pop(key, None)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._changed.clear()
            self._fire_due()
            delay = _LONGEST_SLEEP_S
            if self._heap:
                delay = min(delay, max(self._heap[0][0] - time.time(), 0.0))
            # Not wait_for: Python 3.11's may swallow a cancellation that meets the event.
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._changed.wait()

    def _fire_due(self) -> None:
        while self._heap:
            at, key = self._heap[0]
            if self._at.get(key) == at and at > time.time():
                return
            heapq.heappop(self._heap)
            if self._at.get(key) != at:
                continue
            del self._at[key]
            task = asyncio.ensure_future(self._expire(key))
            self._firing.add(task)
            task.add_done_callback(self._firing.discard)
