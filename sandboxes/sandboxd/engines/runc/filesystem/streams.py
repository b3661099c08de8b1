"""The contents of a file as a stream, in both directions, in chunks of about a mebibyte."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, AsyncIterator, Callable

from sandboxes.sandboxd.engines.runc.filesystem.root import Root
from sandboxes.sandboxd.engines.runc.filesystem.threads import in_thread

__all__ = ["FileReader", "OpenFile", "copy_in"]

CHUNK_BYTES = 1 << 20
_MAX_PIECES = 512  # below IOV_MAX


class OpenFile:
    """A descriptor that is closed at the latest when nobody holds it any more."""

    def __init__(self) -> None:
        self.fd = -1

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class FileReader(AsyncIterator[bytes]):
    """Ends at the end of the file or after `length` bytes. Closes itself then, or by `aclose`."""

    def __init__(self, file: OpenFile, path: str, *, offset: int, length: int | None) -> None:
        self._file = file
        self._path = path
        self._offset = offset
        self._left = length

    @classmethod
    async def open(
        cls, open_root: Callable[[], int], path: str, *, offset: int, length: int | None
    ) -> FileReader:
        file = OpenFile()

        def start() -> None:
            with Root(open_root) as root:
                file.fd = root.open_file(path, os.O_RDONLY)

        await in_thread(path, start)
        return cls(file, path, offset=offset, length=length)

    async def __anext__(self) -> bytes:
        wanted = CHUNK_BYTES if self._left is None else min(CHUNK_BYTES, self._left)
        fd = self._file.fd
        if fd < 0 or wanted == 0:
            await self.aclose()
            raise StopAsyncIteration
        chunk = await in_thread(self._path, os.pread, fd, wanted, self._offset)
        if not chunk:
            await self.aclose()
            raise StopAsyncIteration
        self._offset += len(chunk)
        if self._left is not None:
            self._left -= len(chunk)
        return chunk

    async def aclose(self) -> None:
        self._file.close()


async def copy_in(fd: int, path: str, data: AsyncIterable[bytes]) -> None:
    """Small chunks are gathered, so that a thread is asked once a mebibyte."""
    pieces: list[bytes] = []
    size = 0
    async for chunk in data:
        if not chunk:
            continue
        pieces.append(chunk)
        size += len(chunk)
        if size >= CHUNK_BYTES or len(pieces) >= _MAX_PIECES:
            await in_thread(path, _write_all, fd, pieces)
            pieces, size = [], 0
    if pieces:
        await in_thread(path, _write_all, fd, pieces)


def _write_all(fd: int, pieces: list[bytes]) -> None:
    views = [memoryview(piece) for piece in pieces]
    while views:
        written = os.writev(fd, views)
        while views and written >= len(views[0]):
            written -= len(views.pop(0))
        if written:
            views[0] = views[0][written:]
