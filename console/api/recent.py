"""Answers of the database that hold for a few seconds, so that a busy session asks it for nothing.

What was changed or revoked elsewhere holds here `FRESH_S` later at the latest. While the database
fails, answers that were fresh not long ago go on holding (`STALE_S`): sessions that are bound keep
working, and nobody gains a right that they did not have.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from django.db import Error as DatabaseError

__all__ = ["FRESH_S", "STALE_S", "Recent"]

log = logging.getLogger(__name__)

FRESH_S = 5.0
STALE_S = 300.0
_RETRY_S = 1.0
_MAX_ENTRIES = 4096

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """One kind of answer in one process. None is an answer too, but is never kept."""

    def __init__(self) -> None:
        self._kept: OrderedDict[K, tuple[float, float, V]] = OrderedDict()
        """Key to (loaded at, to be asked again at, answer), oldest first."""
        self._loading: WeakValueDictionary[K, asyncio.Lock] = WeakValueDictionary()

    def peek(self, key: K) -> V | None:
        """The answer if it is fresh."""
        kept = self._kept.get(key)
        return kept[2] if kept and time.monotonic() < kept[1] else None

    async def get(self, key: K, load: Callable[[], Awaitable[V | None]]) -> V | None:
        """The fresh answer, or what `load` says now. Concurrent calls for one key load once."""
        found = self.peek(key)
        if found is not None:
            return found
        lock = self._loading.setdefault(key, asyncio.Lock())
        async with lock:
            found = self.peek(key)
            return found if found is not None else await self._load(key, load)

    def forget(self) -> None:
        self._kept.clear()

    async def _load(self, key: K, load: Callable[[], Awaitable[V | None]]) -> V | None:
        try:
            answer = await load()
        except DatabaseError as error:
            kept = self._kept.get(key)
            now = time.monotonic()
            if kept is None or now - kept[0] > STALE_S:
                raise
            log.warning("the database failed, so an answer from before is used: %s", error)
            self._kept[key] = (kept[0], now + _RETRY_S, kept[2])
            return kept[2]
        self._kept.pop(key, None)
        if answer is not None:
            now = time.monotonic()
            self._kept[key] = (now, now + FRESH_S, answer)
            while len(self._kept) > _MAX_ENTRIES:
                self._kept.popitem(last=False)
        return answer
