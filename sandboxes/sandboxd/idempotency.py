"""Idempotency-Key on create: the same key and the same request give the same sandbox for a day."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable

from sandboxes.errors import Conflict, InvalidRequest
from sandboxes.sandboxd.live import LiveSandbox
from sandboxes.sandboxd.records import CreateReceipt
from sandboxes.sandboxd.service import SandboxService
from sandboxes.sandboxd.store import Store

__all__ = ["KEPT_S", "Receipts"]

KEPT_S = 24 * 3600.0
_KEY = re.compile(r"[A-Za-z0-9_-]{1,255}", re.ASCII)


class Receipts:
    def __init__(self, service: SandboxService, store: Store) -> None:
        self._service = service
        self._store = store
        self._receipts: dict[str, CreateReceipt] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    def load(self, receipts: Iterable[CreateReceipt]) -> None:
        self._receipts = {receipt.key: receipt for receipt in receipts}

    async def create_once(
        self, key: str | None, digest: str, create: Callable[[], Awaitable[LiveSandbox]]
    ) -> LiveSandbox:
        """Without a key, simply create. A second request with the key waits for the first.

        Conflict if the key stood for another request, NotFound if its sandbox is gone meanwhile.
        """
        if key is None:
            return await create()
        if not _KEY.fullmatch(key):
            raise InvalidRequest("Idempotency-Key must be 1 to 255 letters, digits, - or _")
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                return await self._replay_or_create(key, digest, create)
        finally:
            if not lock.locked():
                self._locks.pop(key, None)

    async def _replay_or_create(
        self, key: str, digest: str, create: Callable[[], Awaitable[LiveSandbox]]
    ) -> LiveSandbox:
        await self._forget_old()
        receipt = self._receipts.get(key)
        if receipt is None:
            live = await create()
            receipt = CreateReceipt(
                key=key, digest=digest, sandbox_id=live.id, created_at=time.time()
            )
            await self._store.put_receipt(receipt)
            self._receipts[key] = receipt
            return live
        if receipt.digest != digest:
            raise Conflict("This Idempotency-Key was used for another request; choose a new key")
        return self._service.get(receipt.sandbox_id)

    async def _forget_old(self) -> None:
        horizon = time.time() - KEPT_S
        old = [key for key, receipt in self._receipts.items() if receipt.created_at < horizon]
        if old:
            await self._store.delete_receipts_before(horizon)
            for key in old:
                del self._receipts[key]
