"""sandboxd's memory: one sqlite file in WAL mode, written by one thread in the order asked for.

The service keeps the rows in memory and writes through; nothing here is read while serving.
The file holds access tokens: it is created 0600.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sandboxes.sandboxd.records import CreateReceipt, SandboxRecord, SnapshotNames

__all__ = ["Loaded", "Store"]

T = TypeVar("T")

_SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS sandboxes (id TEXT PRIMARY KEY, record TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS snapshots (id TEXT PRIMARY KEY, name TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS receipts (
    key TEXT PRIMARY KEY, digest TEXT NOT NULL, sandbox_id TEXT NOT NULL, created_at REAL NOT NULL
) STRICT;
"""


@dataclass(frozen=True, slots=True)
class Loaded:
    sandboxes: list[SandboxRecord]
    snapshots: list[SnapshotNames]
    receipts: list[CreateReceipt]


class Store:
    """Each write is durable against a crash of sandboxd when its await returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> Loaded:
        return await self._run(self._open)

    async def put_sandbox(self, record: SandboxRecord) -> None:
        body = record.to_json()
        await self._execute("INSERT OR REPLACE INTO sandboxes VALUES (?, ?)", record.id, body)

    async def delete_sandbox(self, sandbox_id: str) -> None:
        await self._execute("DELETE FROM sandboxes WHERE id = ?", sandbox_id)

    async def put_snapshot(self, names: SnapshotNames) -> None:
        await self._execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?)", names.id, names.name)

    async def delete_snapshot(self, snapshot_id: str) -> None:
        await self._execute("DELETE FROM snapshots WHERE id = ?", snapshot_id)

    async def put_receipt(self, receipt: CreateReceipt) -> None:
        await self._execute(
            "INSERT OR REPLACE INTO receipts VALUES (?, ?, ?, ?)",
            receipt.key,
            receipt.digest,
            receipt.sandbox_id,
            receipt.created_at,
        )

    async def delete_receipts_before(self, created_at: float) -> None:
        await self._execute("DELETE FROM receipts WHERE created_at < ?", created_at)

    async def aclose(self) -> None:
        """Idempotent."""
        if self._connection is not None:
            await self._run(self._connection.close)
            self._connection = None
        self._thread.shutdown(wait=False)

    def _open(self) -> Loaded:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.executescript(_SCHEMA)
        connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
        self._connection = connection
        rows = connection.execute
        return Loaded(
            sandboxes=[
                SandboxRecord.from_json(body) for (body,) in rows("SELECT record FROM sandboxes")
            ],
            snapshots=[
                SnapshotNames(id=id, name=name)
                for id, name in rows("SELECT id, name FROM snapshots")
            ],
            receipts=[
                CreateReceipt(key=key, digest=digest, sandbox_id=sandbox_id, created_at=created_at)
                for key, digest, sandbox_id, created_at in rows(
                    "SELECT key, digest, sandbox_id, created_at FROM receipts"
                )
            ],
        )

    async def _execute(self, statement: str, *values: str | float) -> None:
        def write() -> None:
            if self._connection is None:
                raise RuntimeError("the store is not open")
            self._connection.execute(statement, values)

        await self._run(write)

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)
