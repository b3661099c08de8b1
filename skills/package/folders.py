"""A folder on this machine's disk. Links are reported to the reader (which refuses them), never followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from skills.package.content import CHUNK_BYTES
from skills.package.errors import refuse
from skills.package.names import is_junk, printable
from skills.package.sources import EntryKind, RawEntry
from skills.package.types import Limits, Note

__all__ = ["FolderSource"]


class FolderSource:
    def __init__(self, folder: Path, limits: Limits) -> None:
        self.folder_name = folder.resolve().name
        self.notes: list[Note] = []
        self.packed_bytes: int | None = None
        self._folder = folder
        self._limits = limits
        self._names: list[str] = []

    def listing(self) -> Iterator[RawEntry]:
        pending = [""]
        while pending:
            below = pending.pop()
            for item in self._scan(below):
                name = f"{below}/{item.name}" if below else item.name
                entry = _entry(item, name)
                # Junk can be huge (a repository's history): list the folder, don't walk it.
                if entry.kind is EntryKind.FOLDER and not is_junk(name):
                    pending.append(name)
                self._names.append(name)
                yield entry

    def _scan(self, below: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._folder / below) as items:
                return sorted(items, key=lambda item: item.name)
        except OSError as error:
            raise _unreadable(below or str(self._folder), error) from error

    def chunks(self, index: int) -> Iterator[bytes]:
        name = self._names[index]
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(self._folder / name, flags)
            with open(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise OSError("not a regular file")
                while chunk := file.read(CHUNK_BYTES):
                    yield chunk
        except OSError as error:
            raise _unreadable(name, error) from error

    def close(self) -> None:
        """Nothing is held open."""


def _entry(item: os.DirEntry[str], name: str) -> RawEntry:
    try:
        mode = item.stat(follow_symlinks=False).st_mode
    except OSError as error:
        raise _unreadable(name, error) from error
    if stat.S_ISLNK(mode):
        return RawEntry(name, EntryKind.LINK)
    if stat.S_ISDIR(mode):
        return RawEntry(name, EntryKind.FOLDER)
    kind = EntryKind.FILE if stat.S_ISREG(mode) else EntryKind.DEVICE
    return RawEntry(name, kind, bool(mode & stat.S_IXUSR))


def _unreadable(name: str, error: OSError) -> Exception:
    shown = printable(name)
    reason = error.strerror or str(error)
    return refuse(
        "file_unreadable", f"“{shown}” can't be read ({reason}): check its permissions.", shown
    )
