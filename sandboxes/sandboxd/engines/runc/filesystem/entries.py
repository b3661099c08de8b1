"""What an entry is: FileInfo of one, and of all below a directory."""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from sandboxes.errors import Capacity, InvalidRequest
from sandboxes.sandboxd.engines.base import FileInfo
from sandboxes.sandboxd.engines.runc.filesystem.accounts import Accounts
from sandboxes.sandboxd.engines.runc.filesystem.root import Root, descriptor_path, opened
from sandboxes.types import FileType

__all__ = ["describe", "display", "file_type", "list_entries", "replace_metadata"]

_MAX_ENTRIES = 100_000
_METADATA = "user.e2b."
_VANISHED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE, errno.ENAMETOOLONG})


def file_type(mode: int) -> FileType:
    if stat.S_ISREG(mode):
        return FileType.FILE
    if stat.S_ISDIR(mode):
        return FileType.DIRECTORY
    return FileType.SYMLINK if stat.S_ISLNK(mode) else FileType.OTHER


def display(name: str) -> str:
    """A name that any encoder takes. Linux names are bytes; those that are no UTF-8 show U+FFFD."""
    return os.fsencode(name).decode(errors="replace")


def describe(root: Root, accounts: Accounts, path: str, fd: int) -> FileInfo:
    """Of the entry behind `fd`, whose path is `path`; `fd` may be O_PATH."""
    status = os.fstat(fd)
    link_target = target_type = None
    metadata: Mapping[str, str] = {}
    if stat.S_ISLNK(status.st_mode):
        link_target = display(os.readlink("", dir_fd=fd))
        target_type = _target_type(root, path)
    elif stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
        metadata = _metadata(descriptor_path(fd))
    return FileInfo(
        name=display(posixpath.basename(path)) or "/",
        path=display(path),
        type=file_type(status.st_mode),
        size_bytes=status.st_size,
        mode=stat.S_IMODE(status.st_mode),
        owner=accounts.user_name(status.st_uid),
        group=accounts.group_name(status.st_gid),
        modified_at=datetime.fromtimestamp(status.st_mtime, UTC),
        link_target=link_target,
        target_type=target_type,
        metadata=metadata,
    )


def list_entries(root: Root, accounts: Accounts, path: str, *, depth: int) -> list[FileInfo]:
    """Depth first, sorted by name. What vanishes meanwhile is left out."""
    with opened(root.directory(path)) as fd:
        names = sorted(os.listdir(fd))
    entries: list[FileInfo] = []
    # One iterator a level, and no descriptor kept: depth costs neither stack nor files.
    levels: list[Iterator[str]] = [iter([posixpath.join(path, name) for name in names])]
    while levels:
        child = next(levels[-1], None)
        if child is None:
            levels.pop()
            continue
        try:
            with opened(root.entry(child)) as fd:
                info = describe(root, accounts, child, fd)
                below: list[str] = []
                if info.type is FileType.DIRECTORY and len(levels) < depth:
                    below = sorted(os.listdir(descriptor_path(fd)))
        except OSError as error:
            if error.errno in _VANISHED:
                continue
            raise
        if len(entries) >= _MAX_ENTRIES:
            raise Capacity(
                f"{path} holds more than {_MAX_ENTRIES} entries; list a directory below it"
            )
        entries.append(info)
        if below:
            levels.append(iter([posixpath.join(child, name) for name in below]))
    return entries


def replace_metadata(fd: int, metadata: Mapping[str, str]) -> None:
    """All of it: keys that are not in `metadata` are removed."""
    try:
        wanted = {_METADATA + key: value.encode() for key, value in metadata.items()}
        if any("\0" in name or name == _METADATA for name in wanted):
            raise ValueError("an empty key or a NUL character")
    except ValueError as error:  # UnicodeEncodeError among them
        raise InvalidRequest(
            "A metadata key or value is empty or no valid text; correct it"
        ) from error
    for name in os.listxattr(fd):
        if name.startswith(_METADATA) and name not in wanted:
            os.removexattr(fd, name)
    for name, value in wanted.items():
        os.setxattr(fd, name, value)


def _metadata(path: str) -> dict[str, str]:
    try:
        names = [name for name in os.listxattr(path) if name.startswith(_METADATA)]
        return {
            display(name.removeprefix(_METADATA)): os.getxattr(path, name).decode(errors="replace")
            for name in names
        }
    except OSError:
        return {}  # a file system without xattrs, or a name that went meanwhile


def _target_type(root: Root, path: str) -> FileType | None:
    try:
        with opened(root.target(path)) as fd:
            return file_type(os.fstat(fd).st_mode)
    except OSError:
        return None
