"""Audit lines and times of use that no caller waits for, written in batches.

Commands come by the thousand, and a write each would cost more than the command. A crash loses the
last half second of them at most. While the database fails they are kept, and the call they tell of
goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from datetime import datetime
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async
from django.db import Error as DatabaseError
from django.db import close_old_connections, transaction
from django.utils import timezone

from console.audit.services import Line, record_all
from console.fleet.models import Session

__all__ = ["Journal", "journal", "start_journal"]

log = logging.getLogger(__name__)

FLUSH_S = 0.5
_RETRY_S = 5.0
_MAX_KEPT = 20_000
_BATCH = 500


class Journal:
    """One an event loop that lives as long as the process."""

    def __init__(self) -> None:
        self._entries: deque[Line] = deque()
        self._used: dict[tuple[str, str], datetime] = {}
        self._flusher: asyncio.Task[None] | None = None

    async def note(self, entry: Line | None = None, *, used: tuple[str, str] | None = None) -> None:
        """`entry` is of the audit log; `used` a (space id, session id)."""
        if entry is not None:
            self._entries.append(entry)
        if used is not None:
            self._used[used] = timezone.now()
        while len(self._entries) > _MAX_KEPT:
            lost = self._entries.popleft()
            log.error("the database failed for too long; lost of the audit log: %s", lost)
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.get_running_loop().create_task(self._flush_later())

    async def _flush_later(self) -> None:
        pause = FLUSH_S
        while self._entries or self._used:
            await asyncio.sleep(pause)
            try:
                await self.flush()
                pause = FLUSH_S
            except DatabaseError as error:
                pause = _RETRY_S
                log.warning("%d audit lines wait for the database: %s", len(self._entries), error)

    async def flush(self) -> None:
        """Write what is there now."""
        while self._entries or self._used:
            batch = [self._entries.popleft() for _ in range(min(_BATCH, len(self._entries)))]
            used, self._used = self._used, {}
            try:
                await sync_to_async(_write, thread_sensitive=False)(batch, used)
            except BaseException:
                self._entries.extendleft(reversed(batch))
                self._used = {**used, **self._used}
                raise

    async def aclose(self) -> None:
        if self._flusher is not None:
            self._flusher.cancel()
            await asyncio.gather(self._flusher, return_exceptions=True)
        try:
            await self.flush()
        except DatabaseError:
            log.exception("%d audit lines are lost", len(self._entries))


class _AtOnce(Journal):
    """Where the loop ends with the request, as under a test client."""

    async def note(self, entry: Line | None = None, *, used: tuple[str, str] | None = None) -> None:
        times = {used: timezone.now()} if used else {}
        await sync_to_async(_store)([entry] if entry else [], times)


_running: WeakKeyDictionary[asyncio.AbstractEventLoop, Journal] = WeakKeyDictionary()


def start_journal() -> Journal:
    """This loop's, for a server that closes it in the end."""
    return _running.setdefault(asyncio.get_running_loop(), Journal())


def journal() -> Journal:
    return _running.get(asyncio.get_running_loop()) or _AtOnce()


def _write(entries: list[Line], used: dict[tuple[str, str], datetime]) -> None:
    close_old_connections()
    try:
        _store(entries, used)
    finally:
        close_old_connections()


@transaction.atomic
def _store(entries: list[Line], used: dict[tuple[str, str], datetime]) -> None:
    record_all(entries)
    for (space_id, session_id), at in used.items():
        Session.objects.filter(space=space_id, session_id=session_id).update(used_at=at)
