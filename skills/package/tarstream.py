"""A package as one tar stream, to be unpacked in a sandbox in a single go."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator

from skills.package.types import Package

__all__ = ["to_tar"]


def to_tar(package: Package, *, prefix: str = "") -> Iterator[bytes]:
    """Yield an uncompressed tar of every file and folder, owned by root, modes 0755 and 0644.

    `prefix` is a relative folder that everything is put below. Same package, same bytes: times are
    zero. Memory stays flat whatever the package's size.
    """
    seen: set[str] = set()
    for file in package.files:
        path = f"{prefix.strip('/')}/{file.path}" if prefix else file.path
        for folder in _folders_above(path):
            if folder not in seen:
                seen.add(folder)
                yield _header(folder, 0, 0o755, tarfile.DIRTYPE)
        yield _header(path, file.size_bytes, 0o755 if file.executable else 0o644, tarfile.REGTYPE)
        yield from package.stream(file.path)
        yield b"\0" * (-file.size_bytes % tarfile.BLOCKSIZE)
    yield b"\0" * tarfile.RECORDSIZE


def _folders_above(path: str) -> Iterator[str]:
    parts = path.split("/")[:-1]
    for depth in range(1, len(parts) + 1):
        yield "/".join(parts[:depth])


def _header(path: str, size_bytes: int, mode: int, kind: bytes) -> bytes:
    info = tarfile.TarInfo(path)
    info.size, info.mode, info.type = size_bytes, mode, kind
    info.uname = info.gname = "root"
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
