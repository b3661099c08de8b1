"""Zip archives, read with the standard library and none of its trust in headers.

Only stored and deflated entries are read: those are what every skill uses, and only those decompress with
a bound on the memory that one read takes.
"""

from __future__ import annotations

import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from skills.package.content import CHUNK_BYTES
from skills.package.errors import PackageRefused, refuse
from skills.package.names import printable
from skills.package.sources import EntryKind, RawEntry, rewound
from skills.package.types import Limits, Note

__all__ = ["ZipSource"]

_ENCRYPTED = 0x1 | 0x40 | 0x2000
_UTF8_NAME = 0x800
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}


class ZipSource:
    def __init__(self, stream: BinaryIO, limits: Limits, folder_name: str = "") -> None:
        self.folder_name = folder_name
        self.notes: list[Note] = []
        stream, size_bytes = rewound(stream, limits)
        self.packed_bytes: int | None = size_bytes
        self._limits = limits
        with _translated():
            self._zip = zipfile.ZipFile(stream)
        self._infos = self._zip.infolist()

    def listing(self) -> Iterator[RawEntry]:
        for info in self._infos:
            name = self._name(info)
            if info.flag_bits & _ENCRYPTED:
                raise refuse(
                    "entry_encrypted",
                    f"“{printable(name)}” is encrypted: pack it again without a password.",
                    printable(name),
                )
            mode = info.external_attr >> 16
            # A header may claim a small packed size; what it can't claim is more than the archive.
            packed = min(info.compress_size, self.packed_bytes or 0)
            yield RawEntry(name, _kind(name, mode), bool(mode & 0o100), packed)

    def chunks(self, index: int) -> Iterator[bytes]:
        info = self._infos[index]
        shown = printable(info.orig_filename)
        if info.compress_type not in _METHODS:
            raise refuse(
                "compression_unsupported",
                f"“{shown}” is packed with an unusual method: pack it again as an ordinary zip.",
                shown,
            )
        with _translated(shown), self._zip.open(info) as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    def close(self) -> None:
        self._zip.close()

    def _name(self, info: zipfile.ZipInfo) -> str:
        # orig_filename, because zipfile cuts `filename` at a NUL before anyone can object.
        name = info.orig_filename
        if info.flag_bits & _UTF8_NAME or name.isascii():
            return name
        # No flag: the standard says cp437, but archivers write UTF-8 or the system's code page.
        raw = name.encode("cp437")
        for encoding in ("utf-8", "gb18030"):
            try:
                name = raw.decode(encoding)
            except UnicodeDecodeError:
                continue
            self.notes.append(
                Note(
                    "name_decoded",
                    f"“{printable(name)}” was read as {encoding.upper()}: the archive does not "
                    "say how its names are encoded.",
                    printable(name),
                )
            )
            return name
        return raw.decode("utf-8", "surrogateescape")


def _kind(name: str, mode: int) -> EntryKind:
    kind = stat.S_IFMT(mode)
    if kind == stat.S_IFLNK:
        return EntryKind.LINK
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return EntryKind.DEVICE
    return EntryKind.FOLDER if name.endswith("/") or kind == stat.S_IFDIR else EntryKind.FILE


@contextmanager
def _translated(entry: str = "") -> Iterator[None]:
    """zipfile answers hostile bytes with a dozen kinds of exception; all of them mean the same."""
    try:
        yield
    except (PackageRefused, GeneratorExit):
        raise
    except Exception as error:
        where = f"“{entry}” in the zip archive" if entry else "The zip archive"
        raise refuse(
            "archive_corrupt", f"{where} is damaged or cut short: pack or send it again.", entry
        ) from error
