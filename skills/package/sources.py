"""One way to read every kind of source: list what it holds, then stream what is wanted.

A source yields raw names; nothing here trusts or judges them. `listing` is cheap and happens once; `chunks`
may be called for any listed file, best in the order of the listing.
"""

from __future__ import annotations

import enum
import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from skills.package.content import CHUNK_BYTES
from skills.package.errors import refuse
from skills.package.names import printable
from skills.package.types import Limits, Note

__all__ = [
    "EntryKind",
    "RawEntry",
    "Source",
    "UploadSource",
    "UploadedFile",
    "is_bomb",
    "measured",
    "rewound",
]


class EntryKind(enum.StrEnum):
    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    DEVICE = "device"


@dataclass(frozen=True, slots=True)
class RawEntry:
    name: str
    kind: EntryKind
    executable: bool = False
    packed_bytes: int | None = None
    """What the file takes up in the archive, where that can be told; else None."""


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """One file of a folder upload: its path as the browser gave it, and its content."""

    path: str
    content: bytes | BinaryIO
    mode: int | None = None
    """POSIX mode bits, where the sender knows them; only the owner's executable bit is used."""


class Source(Protocol):
    folder_name: str
    """What the top folder is called outside of the source; empty when it has no name."""
    notes: list[Note]
    packed_bytes: int | None
    """Size of the whole archive where its files are unpacked one by one; else None."""

    def listing(self) -> Iterator[RawEntry]: ...

    def chunks(self, index: int) -> Iterator[bytes]:
        """The content of the listing's entry number `index`."""
        ...

    def close(self) -> None: ...


class UploadSource:
    """A folder sent file by file, or one SKILL.md."""

    def __init__(self, files: Iterable[UploadedFile], folder_name: str = "") -> None:
        self._files = list(files)
        self.folder_name = folder_name
        self.notes: list[Note] = []
        self.packed_bytes: int | None = None

    def listing(self) -> Iterator[RawEntry]:
        for file in self._files:
            executable = bool((file.mode or 0) & 0o100)
            yield RawEntry(file.path, EntryKind.FILE, executable)

    def chunks(self, index: int) -> Iterator[bytes]:
        content = self._files[index].content
        if isinstance(content, bytes):
            yield content
            return
        content.seek(0)
        while chunk := content.read(CHUNK_BYTES):
            yield chunk

    def close(self) -> None:
        """The files belong to the caller."""


def rewound(stream: BinaryIO, limits: Limits) -> tuple[BinaryIO, int]:
    """The stream at its start, and its size in bytes; refuses one that is too large."""
    size = stream.seek(0, io.SEEK_END)
    stream.seek(0)
    if size > limits.max_archive_bytes:
        raise refuse(
            "archive_too_large",
            f"The archive has {size:,} bytes; at most {limits.max_archive_bytes:,} are taken: "
            "leave out what the skill does not need.",
        )
    return stream, size


def measured(
    chunks: Iterable[bytes],
    name: str,
    packed_bytes: int | None,
    limits: Limits,
    count_total: Callable[[int], None],
) -> Iterator[bytes]:
    """Pass the chunks on while counting them, and stop at the first byte over a limit."""
    size = 0
    for chunk in chunks:
        size += len(chunk)
        shown = printable(name)
        if size > limits.max_file_bytes:
            raise refuse(
                "file_too_large",
                f"“{shown}” is larger than {limits.max_file_bytes:,} bytes: "
                "leave it out and fetch it when the skill runs.",
                shown,
            )
        if packed_bytes is not None and is_bomb(size, packed_bytes, limits):
            raise refuse(
                "compression_bomb",
                f"“{shown}” unpacks to more than {limits.max_ratio} times its packed size: "
                "leave it out.",
                shown,
            )
        count_total(len(chunk))
        yield chunk


def is_bomb(unpacked_bytes: int, packed_bytes: int, limits: Limits) -> bool:
    return unpacked_bytes > limits.ratio_floor_bytes and unpacked_bytes > limits.max_ratio * max(
        packed_bytes, 1
    )
