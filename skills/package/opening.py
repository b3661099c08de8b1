"""Tells what was handed in by its first bytes, never by its name, and opens it."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, cast

from skills.package.content import CHUNK_BYTES, Spool
from skills.package.errors import refuse
from skills.package.folders import FolderSource
from skills.package.names import printable
from skills.package.sources import Source, UploadedFile, UploadSource, rewound
from skills.package.tars import TarSource
from skills.package.types import Limits
from skills.package.zips import ZipSource

__all__ = ["PackageSource", "open_source"]

PackageSource = Path | str | bytes | BinaryIO | Iterable[UploadedFile]

_OTHER_FORMATS = (
    (b"7z\xbc\xaf\x27\x1c", "7-Zip"),
    (b"Rar!\x1a\x07", "RAR"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "Zstandard"),
    (b"MSCF", "CAB"),
)


def open_source(source: PackageSource, limits: Limits) -> Source:
    """See `read_package` for what each kind of source means. The caller closes the result."""
    if isinstance(source, str):
        return _pasted(source.encode("utf-8", "surrogatepass"))
    if isinstance(source, bytes):
        return _sniffed(io.BytesIO(source), limits)
    if isinstance(source, Path):
        return _path(source, limits)
    if hasattr(source, "read"):
        return _sniffed(_seekable(cast(BinaryIO, source), limits), limits)
    return UploadSource(source)


def _path(path: Path, limits: Limits) -> Source:
    if path.is_dir():
        return FolderSource(path, limits)
    try:
        with path.open("rb") as file:
            return _sniffed(_seekable(file, limits, copy=True), limits)
    except OSError as error:
        shown = printable(str(path))
        reason = error.strerror or str(error)
        raise refuse("source_unreadable", f"“{shown}” can't be read: {reason}.", shown) from error


def _seekable(stream: BinaryIO, limits: Limits, *, copy: bool = False) -> BinaryIO:
    """The stream itself when one can seek in it, else a bounded copy."""
    if not copy and stream.seekable():
        return stream
    spool = Spool()
    size = 0
    while (chunk := stream.read(CHUNK_BYTES)) and size <= limits.max_archive_bytes:
        size += len(chunk)
        spool.write(chunk)
    return cast(BinaryIO, spool)


def _pasted(text: bytes) -> Source:
    return UploadSource([UploadedFile("SKILL.md", text)])


def _sniffed(stream: BinaryIO, limits: Limits) -> Source:
    stream, size = rewound(stream, limits)
    head = stream.read(tarfile.BLOCKSIZE)
    if not size:
        raise refuse("archive_empty", "The package is empty: send a zip, a tar.gz or a SKILL.md.")
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return ZipSource(stream, limits)
    if head.startswith(b"\x1f\x8b") or _is_tar_header(head):
        return TarSource(stream, limits)
    for magic, name in _OTHER_FORMATS:
        if head.startswith(magic):
            raise refuse(
                "format_unsupported", f"{name} archives are not read: pack it as zip or tar.gz."
            )
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or _is_text(head):
        stream.seek(0)
        return _pasted(stream.read(limits.max_skill_md_bytes + 1))
    raise refuse(
        "format_unknown",
        "This is no zip, no tar.gz and no SKILL.md text: pack the skill's folder as zip.",
    )


def _is_tar_header(block: bytes) -> bool:
    if len(block) < tarfile.BLOCKSIZE or not any(block):
        return False
    if block[257:262] == b"ustar":
        return True
    try:
        tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.TarError, ValueError):
        return False
    return True


def _is_text(head: bytes) -> bool:
    if b"\0" in head:
        return False
    if head.removeprefix(b"\xef\xbb\xbf").startswith(b"---"):
        return True
    # The block may end inside of a character; three bytes are the most that can be missing.
    return any(_decodes(head[: len(head) - cut]) for cut in range(4))


def _decodes(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
