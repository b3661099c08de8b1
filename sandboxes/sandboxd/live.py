"""A sandbox as sandboxd holds it in memory: its record, its lock, and what clients run in it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sandboxes.errors import Conflict, NotFound
from sandboxes.sandboxd.engines.base import Usage
from sandboxes.sandboxd.processes import ProcessRegistry
from sandboxes.sandboxd.records import SandboxRecord
from sandboxes.sandboxd.watchers import WatcherRegistry
from sandboxes.wire.messages import NOT_FOUND_TEXT

__all__ = ["SAMPLES_KEPT", "LiveSandbox", "Sample"]

SAMPLES_KEPT = 720


@dataclass(frozen=True, slots=True)
class Sample:
    taken_at: float
    usage: Usage


class LiveSandbox:
    def __init__(self, record: SandboxRecord, sandbox_died: Callable[[], Awaitable[bool]]) -> None:
        self.record = record
        self.gone = False
        self.transition: str | None = None
        self.processes = ProcessRegistry(sandbox_died)
        self.watchers = WatcherRegistry()
        self.samples: deque[Sample] = deque(maxlen=SAMPLES_KEPT)
        self._lock = asyncio.Lock()

    @property
    def id(self) -> str:
        return self.record.id

    @asynccontextmanager
    async def changing(self, transition: str, *, wait: bool) -> AsyncIterator[None]:
        """Hold its lifecycle. Without `wait`, Conflict while another change is under way.
        NotFound if it is gone by the time the lock is ours."""
        if self.transition is not None and not wait:
            raise Conflict(f"Sandbox {self.id} is {self.transition}; try again in a moment")
        async with self._lock:
            if self.gone:
                raise NotFound(f"Sandbox {self.id} not found")
            self.transition = transition
            try:
                yield
            finally:
                self.transition = None

    def bury(self) -> None:
        """From here on no client finds it, and every stream of it ends. Idempotent."""
        self.gone = True
        self.processes.close(NOT_FOUND_TEXT)
        self.watchers.close(NOT_FOUND_TEXT)

    def pause_clocks(self) -> None:
        self.record.paused = True
        self.processes.pause_deadlines()

    def resume_clocks(self) -> None:
        self.record.paused = False
        self.processes.resume_deadlines()
