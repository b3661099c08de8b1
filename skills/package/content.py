"""Where the content of a package lies while it is judged: one anonymous spooled file.

Nothing is ever written under a name that came from a package.
"""

from __future__ import annotations

import hashlib
import tempfile
import threading
from collections.abc import Iterable, Iterator

__all__ = ["CHUNK_BYTES", "ContentStore", "Spool"]

CHUNK_BYTES = 256 * 1024
SPOOL_BYTES = 32 * 1024 * 1024
"""Packages up to this size stay in memory; larger ones go to an unlinked file."""


class Spool(tempfile.SpooledTemporaryFile[bytes]):
    """An anonymous file that closes itself, without a warning, when nobody holds it any more."""

    def __init__(self) -> None:
        super().__init__(max_size=SPOOL_BYTES)

    def __del__(self) -> None:
        self.close()


class ContentStore:
    """Append-only store of named contents. Safe for concurrent reads."""

    def __init__(self) -> None:
        self._file = Spool()
        self._spans: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()
        self._end = 0

    def add(self, path: str, chunks: Iterable[bytes]) -> tuple[int, str]:
        """Keep one content; returns its size in bytes and its hex SHA-256."""
        hasher = hashlib.sha256()
        start = self._end
        self._file.seek(start)
        for chunk in chunks:
            hasher.update(chunk)
            self._file.write(chunk)
            self._end += len(chunk)
        self._spans[path] = (start, self._end - start)
        return self._end - start, hasher.hexdigest()

    def read(self, path: str, max_bytes: int | None = None) -> bytes:
        """The content, or its first `max_bytes`. Raises KeyError for an unknown path."""
        start, size = self._spans[path]
        with self._lock:
            self._file.seek(start)
            return self._file.read(size if max_bytes is None else min(size, max_bytes))

    def stream(self, path: str) -> Iterator[bytes]:
        start, size = self._spans[path]
        end = start + size
        while start < end:
            with self._lock:
                self._file.seek(start)
                chunk = self._file.read(min(CHUNK_BYTES, end - start))
            start += len(chunk)
            yield chunk

    def close(self) -> None:
        self._file.close()
