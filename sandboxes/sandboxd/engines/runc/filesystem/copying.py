"""Moving an entry: by rename, or where two mounts or overlay layers forbid that, by copy."""

from __future__ import annotations

import errno
import os
import posixpath
import secrets
import stat

from sandboxes.errors import Conflict, InvalidRequest
from sandboxes.sandboxd.engines.runc.filesystem.kernel import RESOLVE_NO_XDEV
from sandboxes.sandboxd.engines.runc.filesystem.root import (
    Root,
    descriptor_path,
    open_child_directory,
    opened,
)
from sandboxes.sandboxd.engines.runc.filesystem.trees import remove_tree

__all__ = ["move_entry"]

_MAX_DEPTH = 128  # two descriptors are open for each level
_CHUNK_BYTES = 8 << 20


def move_entry(root: Root, source: str, destination: str, *, uid: int, gid: int) -> None:
    """Missing parents of the destination get these host ids. Raises OSError."""
    with opened(root.entry(source)):  # before anything is made for it
        pass
    source_fd, source_name = root.parent(source)
    with opened(source_fd):
        root.make_directories(posixpath.dirname(destination), uid=uid, gid=gid)
        destination_fd, destination_name = root.parent(destination)
        with opened(destination_fd):
            try:
                os.rename(
                    source_name, destination_name, src_dir_fd=source_fd, dst_dir_fd=destination_fd
                )
            except OSError as error:
                if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
                    raise Conflict(f"{destination} is not empty; remove it first") from error
                if error.errno in {errno.EISDIR, errno.ENOTDIR}:
                    raise Conflict(
                        f"{destination} is in the way and of another type; remove it first"
                    ) from error
                if error.errno != errno.EXDEV:
                    raise
                _move_by_copy(source_fd, source_name, destination_fd, destination_name)


def _move_by_copy(source_fd: int, source: str, destination_fd: int, destination: str) -> None:
    """The copy appears under its name only when it is whole; the source goes after that."""
    partial = f".{destination[:200]}.moving-{secrets.token_hex(6)}"
    try:
        _copy(source_fd, source, destination_fd, partial, depth=0)
        os.rename(partial, destination, src_dir_fd=destination_fd, dst_dir_fd=destination_fd)
    except BaseException:
        remove_tree(destination_fd, partial)
        raise
    remove_tree(source_fd, source)


def _copy(source_fd: int, source: str, destination_fd: int, name: str, *, depth: int) -> None:
    status = os.stat(source, dir_fd=source_fd, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(source, dir_fd=source_fd), name, dir_fd=destination_fd)
        os.chown(name, status.st_uid, status.st_gid, dir_fd=destination_fd, follow_symlinks=False)
    elif stat.S_ISDIR(status.st_mode):
        _copy_directory(source_fd, source, destination_fd, name, depth=depth)
    elif stat.S_ISREG(status.st_mode):
        _copy_file(source_fd, source, destination_fd, name)
    elif stat.S_ISFIFO(status.st_mode):
        os.mkfifo(name, stat.S_IMODE(status.st_mode), dir_fd=destination_fd)
        os.chown(name, status.st_uid, status.st_gid, dir_fd=destination_fd, follow_symlinks=False)
    # A socket without its server is nothing to keep.


def _copy_directory(
    source_fd: int, source: str, destination_fd: int, name: str, *, depth: int
) -> None:
    if depth >= _MAX_DEPTH:
        raise InvalidRequest(
            f"{source} is nested too deep to be copied to another mount; move it by a command"
        )
    os.mkdir(name, 0o700, dir_fd=destination_fd)
    with (
        opened(open_child_directory(source_fd, source, extra_resolve=RESOLVE_NO_XDEV)) as from_fd,
        opened(open_child_directory(destination_fd, name)) as to_fd,
    ):
        for child in os.listdir(from_fd):
            _copy(from_fd, child, to_fd, child, depth=depth + 1)
        _copy_attributes(from_fd, to_fd)


def _copy_file(source_fd: int, source: str, destination_fd: int, name: str) -> None:
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with opened(os.open(source, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=source_fd)) as pin:
        if not stat.S_ISREG(os.fstat(pin).st_mode):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), source)
        with (
            opened(os.open(descriptor_path(pin), os.O_RDONLY | os.O_NONBLOCK)) as from_fd,
            opened(
                os.open(
                    name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | flags, 0o600, dir_fd=destination_fd
                )
            ) as to_fd,
        ):
            while os.sendfile(to_fd, from_fd, None, _CHUNK_BYTES):
                pass
            _copy_attributes(from_fd, to_fd)


def _copy_attributes(from_fd: int, to_fd: int) -> None:
    status = os.fstat(from_fd)
    for name in os.listxattr(from_fd):
        if name.startswith("user."):
            os.setxattr(to_fd, name, os.getxattr(from_fd, name))
    os.fchown(to_fd, status.st_uid, status.st_gid)
    os.fchmod(to_fd, stat.S_IMODE(status.st_mode))
    os.utime(to_fd, ns=(status.st_atime_ns, status.st_mtime_ns))
