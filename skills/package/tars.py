"""Tar archives, plain or gzipped. A gzip is unpacked first, into an anonymous file, counted and bounded:
after that everything is a plain tar whose true length is known.
"""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, BinaryIO, cast

from skills.package.content import CHUNK_BYTES, Spool
from skills.package.errors import PackageRefused, refuse
from skills.package.names import printable
from skills.package.sources import EntryKind, RawEntry, is_bomb, rewound
from skills.package.types import Limits, Note

__all__ = ["TarSource", "gunzip"]

_HEADER_READ_BYTES = 1024 * 1024
"""No honest header (a long name, pax fields) is larger; file contents are read in smaller chunks."""


class TarSource:
    def __init__(self, stream: BinaryIO, limits: Limits, folder_name: str = "") -> None:
        self.folder_name = folder_name
        self.notes: list[Note] = []
        self.packed_bytes: int | None = None
        stream, _ = rewound(stream, limits)
        self._stream: IO[bytes] = stream
        if stream.read(2) == b"\x1f\x8b":
            self._stream = gunzip(stream, limits)
        self._stream.seek(0)
        with _translated():
            self._tar = tarfile.open(  # noqa: SIM115 - closed by close()
                fileobj=cast(IO[bytes], _BoundedReads(self._stream)),
                mode="r:",
                tarinfo=_CheckedTarInfo,
                encoding="utf-8",
                errors="surrogateescape",
            )
        self._members: list[tarfile.TarInfo] = []

    def listing(self) -> Iterator[RawEntry]:
        while True:
            with _translated():
                member = self._tar.next()
            if member is None:
                break
            self._members.append(member)
            yield RawEntry(member.name, _kind(member), bool(member.mode & 0o100))
        self._check_end()

    def _check_end(self) -> None:
        """tarfile takes a broken header for the end; an honest end is a block of zeros."""
        self._stream.seek(self._tar.offset)
        block = self._stream.read(tarfile.BLOCKSIZE)
        if len(block) < tarfile.BLOCKSIZE or any(block):
            raise _corrupt("")

    def chunks(self, index: int) -> Iterator[bytes]:
        member = self._members[index]
        with _translated(printable(member.name)):
            file = self._tar.extractfile(member)
            assert file is not None  # noqa: S101 - only regular files are ever asked for
            left = member.size
            while left:
                chunk = file.read(min(CHUNK_BYTES, left))
                if not chunk:
                    raise EOFError
                left -= len(chunk)
                yield chunk

    def close(self) -> None:
        self._tar.close()
        if isinstance(self._stream, Spool):
            self._stream.close()


def gunzip(stream: BinaryIO, limits: Limits) -> IO[bytes]:
    """Unpack a gzip of one or more members into an anonymous file."""
    _, packed_bytes = rewound(stream, limits)
    out = Spool()
    # Headers and padding of the largest package, and as much again that may lie beside the skill.
    most = 2 * limits.max_total_bytes + 2048 * limits.max_entries
    size = 0
    decoder = zlib.decompressobj(wbits=31)
    pending = b""
    with _translated():
        while pending or (pending := stream.read(CHUNK_BYTES)):
            if decoder.eof:
                pending = pending.lstrip(b"\0")
                if not pending:
                    continue
                decoder = zlib.decompressobj(wbits=31)
            chunk = decoder.decompress(pending, CHUNK_BYTES)
            pending = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
            size += len(chunk)
            if size > most or is_bomb(size, packed_bytes, limits):
                raise refuse(
                    "compression_bomb",
                    f"The archive unpacks to more than {limits.max_ratio} times its size or "
                    f"{most:,} bytes: leave out what the skill does not need.",
                )
            out.write(chunk)
        if not decoder.eof:
            raise EOFError
    out.seek(0)
    return out


class _CheckedTarInfo(tarfile.TarInfo):
    """Refuses negative sizes, on which the standard library of older Pythons loops (CVE-2025-8194)."""

    def _block(self, count: int) -> int:
        if count < 0:
            raise tarfile.ReadError("negative size")
        blocks, rest = divmod(count, tarfile.BLOCKSIZE)
        return (blocks + bool(rest)) * tarfile.BLOCKSIZE


class _BoundedReads(io.RawIOBase):
    """Refuses a single read so large that only a forged header can have asked for it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._inner = stream

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > _HEADER_READ_BYTES:
            raise tarfile.ReadError("oversized header")
        return self._inner.read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._inner.seek(offset, whence)

    def tell(self) -> int:
        return self._inner.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


def _kind(member: tarfile.TarInfo) -> EntryKind:
    if member.issym() or member.islnk():
        return EntryKind.LINK
    if member.isdir():
        return EntryKind.FOLDER
    # Sparse files are refused too: a few bytes of map stand for any amount of zeros.
    return EntryKind.FILE if member.isreg() and not member.issparse() else EntryKind.DEVICE


def _corrupt(entry: str) -> PackageRefused:
    where = f"“{entry}” in the tar archive" if entry else "The tar archive"
    return refuse(
        "archive_corrupt", f"{where} is damaged or cut short: pack or send it again.", entry
    )


@contextmanager
def _translated(entry: str = "") -> Iterator[None]:
    """tarfile and zlib answer hostile bytes with a dozen kinds of exception, all meaning the same."""
    try:
        yield
    except (PackageRefused, GeneratorExit):
        raise
    except Exception as error:
        raise _corrupt(entry) from error
