"""Snapshots on disk: a copy of a sandbox's upper layer, and the list of what it stands on.

`snapshots/<id>/{diff,snapshot.json}`. A snapshot appears whole by a rename and never changes. A
deleted one stays until nothing stands on it. Its files reach the disk in the background; until they
have, a reboot of the host breaks it, and it is then refused, never used half.
"""

from __future__ import annotations

import asyncio
import ctypes
import dataclasses
import logging
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from sandboxes.errors import Conflict, InvalidRequest
from sandboxes.sandboxd.engines.runc.commands import command
from sandboxes.sandboxd.engines.runc.records import SnapshotFile
from sandboxes.sandboxd.engines.runc.trash import Trash

__all__ = ["SnapshotStore"]

_log = logging.getLogger(__name__)
_libc = ctypes.CDLL(None, use_errno=True)
_RECORD = "snapshot.json"
_UNFINISHED = ".new-"


class SnapshotStore:
    def __init__(self, root: Path, trash: Trash) -> None:
        self.root = root
        self._trash = trash
        self._known: dict[str, SnapshotFile] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Load what is whole, clear what is not, go on flushing what this boot did not finish."""
        self._known.clear()
        for path in self.root.iterdir():
            try:
                found = SnapshotFile.load(path / _RECORD)
            except (OSError, ValueError, KeyError, TypeError):
                self._trash.take(path)
                continue
            if found.id != path.name:
                # All but the last step was done, and nobody was told of it.
                self._trash.take(path)
                continue
            self._known[found.id] = found
            if found.broken():
                _log.warning("snapshot %s was cut short by a reboot", found.id)
            elif not found.synced:
                self._flush_later(found)

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def flushed(self) -> None:
        """Returns when every snapshot made so far has reached the disk."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def usable(self) -> list[SnapshotFile]:
        return [s for s in self._known.values() if not s.deleted and not s.broken()]

    def find(self, snapshot_id: str) -> SnapshotFile | None:
        """InvalidRequest for one that a reboot broke."""
        found = self._known.get(snapshot_id)
        if found is None or found.deleted:
            return None
        if found.broken():
            raise InvalidRequest(
                f"The snapshot {snapshot_id} was not on the disk yet when the host went down; "
                "delete it and make it again."
            )
        return found

    def diff(self, snapshot_id: str) -> Path:
        return self.root / snapshot_id / "diff"

    def begin(self, snapshot_id: str) -> Path:
        """A folder to copy into, not yet a snapshot. Conflict if the id is taken."""
        if snapshot_id in self._known:
            raise Conflict(f"There is a snapshot {snapshot_id} already; choose another id.")
        folder = self.root / f"{_UNFINISHED}{snapshot_id}-{secrets.token_hex(4)}"
        folder.mkdir(mode=0o700)
        return folder

    def abandon(self, folder: Path) -> None:
        self._trash.take(folder)

    async def publish(self, folder: Path, record: SnapshotFile) -> SnapshotFile:
        size = await asyncio.to_thread(_tree_bytes, folder / "diff")
        record = dataclasses.replace(record, size_bytes=size)
        if record.id in self._known:
            raise Conflict(f"There is a snapshot {record.id} already; choose another id.")
        self._known[record.id] = record
        try:
            await asyncio.to_thread(self._put, folder, record)
        except BaseException:
            del self._known[record.id]
            raise
        self._flush_later(record)
        return record

    def _put(self, folder: Path, record: SnapshotFile) -> None:
        record.save(folder / _RECORD)
        folder.rename(self.root / record.id)

    async def delete(self, snapshot_id: str) -> None:
        """Idempotent. `collect` frees what nobody stands on."""
        await self._change(snapshot_id, deleted=True)

    def collect(self, used: Iterable[str]) -> None:
        """`used`: every layer of every sandbox."""
        needed = set(used)
        for snapshot in self._known.values():
            if not snapshot.deleted:
                needed.update(snapshot.layers)
        for snapshot_id in set(self._known) - needed:
            del self._known[snapshot_id]
            self._trash.take(self.root / snapshot_id)

    def standing_on(self, template_id: str) -> list[str]:
        return sorted(s.id for s in self._known.values() if template_id in s.layers)

    async def _change(
        self, snapshot_id: str, *, deleted: bool = False, synced: bool = False
    ) -> None:
        """One at a time: a snapshot may be deleted while it is still being flushed."""
        async with self._changing:
            found = self._known.get(snapshot_id)
            if found is None:
                return
            changed = dataclasses.replace(
                found, deleted=found.deleted or deleted, synced=found.synced or synced
            )
            if changed != found:
                self._known[snapshot_id] = changed
                try:
                    await asyncio.to_thread(changed.save, self.root / snapshot_id / _RECORD)
                except FileNotFoundError:
                    # Collected meanwhile.
                    if snapshot_id in self._known:
                        raise

    def _flush_later(self, snapshot: SnapshotFile) -> None:
        task = asyncio.create_task(self._flush(snapshot.id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _flush(self, snapshot_id: str) -> None:
        await asyncio.to_thread(_sync_file_system, self.root)
        await self._change(snapshot_id, synced=True)


async def copy_tree(source: Path, target: Path) -> None:
    """All of it: owners, modes, times, links, xattrs (opaque marks among them), device nodes
    (whiteouts) and holes. Blocks are shared where the file system can."""
    await command("cp", "-a", "--reflink=auto", "--sparse=auto", "-x", "-T", source, target)


def _sync_file_system(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if _libc.syncfs(fd):
            raise OSError(ctypes.get_errno(), "syncfs")
    finally:
        os.close(fd)


def _tree_bytes(top: Path) -> int:
    """Disk space of a tree; hard links count once."""
    total, seen = 0, set()
    for folder, _, files in os.walk(top):
        for name in (*files, "."):
            found = os.lstat(os.path.join(folder, name))
            if found.st_nlink > 1 and name != ".":
                if found.st_ino in seen:
                    continue
                seen.add(found.st_ino)
            total += found.st_blocks * 512
    return total
