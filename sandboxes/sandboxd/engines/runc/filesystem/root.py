"""The root directory of one sandbox, and the only way from a path to a descriptor.

Names are resolved by openat2(2) with RESOLVE_IN_ROOT: `/`, `..` and every link on the way mean
what they mean inside, whatever a program in the sandbox renames or relinks meanwhile.
RESOLVE_NO_MAGICLINKS closes /proc/<pid>/root and the like, which would lead out all the same.
A change is made by name in a parent directory that was resolved so, never by path.

Every method blocks and raises OSError.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from sandboxes.errors import InvalidRequest
from sandboxes.sandboxd.engines.runc.filesystem.kernel import (
    RESOLVE_BENEATH,
    RESOLVE_IN_ROOT,
    RESOLVE_NO_MAGICLINKS,
    RESOLVE_NO_SYMLINKS,
    is_kernel_filesystem,
    openat2,
)

__all__ = ["Root", "descriptor_path", "normal_path", "open_child_directory", "opened"]

_IN_ROOT = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS
_CHILD = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS
_NEVER_BLOCK = os.O_NONBLOCK | os.O_NOCTTY  # a lease or a fifo must not hold a thread


def normal_path(path: str) -> str:
    """Absolute, with no `.`, `..` or doubled slash. InvalidRequest for anything else."""
    if not path.startswith("/"):
        raise InvalidRequest(f"{path!r} is no absolute path; begin it with /")
    if "\0" in path:
        raise InvalidRequest("A path holds a NUL character; remove it")
    try:
        os.fsencode(path)
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{path!r} is no valid text; correct its characters") from error
    return "/" + posixpath.normpath(path).lstrip("/")


def descriptor_path(fd: int) -> str:
    """A host path that names exactly the entry behind `fd`, for calls that take only paths."""
    return f"/proc/self/fd/{fd}"


@contextmanager
def opened(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def open_child_directory(parent: int, name: str, *, extra_resolve: int = 0) -> int:
    """A directory entry that is itself a directory, never a link to one."""
    return openat2(
        parent, name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, resolve=_CHILD | extra_resolve
    )


class Root:
    """A block in which the sandbox's root is open: `with Root(open_root) as root`."""

    def __init__(self, open_root: Callable[[], int]) -> None:
        self._open_root = open_root
        self._fd = -1

    def __enter__(self) -> Self:
        self._fd = self._open_root()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._fd)

    def entry(self, path: str) -> int:
        """The entry itself, link or not, for looking at only (O_PATH)."""
        return openat2(self._fd, path, os.O_PATH | os.O_NOFOLLOW, resolve=_IN_ROOT)

    def target(self, path: str) -> int:
        """What the path means, links followed, for looking at only (O_PATH)."""
        return openat2(self._fd, path, os.O_PATH, resolve=_IN_ROOT)

    def directory(self, path: str) -> int:
        return openat2(self._fd, path, os.O_RDONLY | os.O_DIRECTORY, resolve=_IN_ROOT)

    def parent(self, path: str) -> tuple[int, str]:
        """The directory that holds the entry, ready for a change in it, and the entry's name."""
        directory, name = posixpath.split(path)
        if not name:
            raise InvalidRequest("The root directory itself cannot be changed; name an entry in it")
        fd = self.directory(directory)
        try:
            _refuse_kernel_files(fd, path)
        except BaseException:
            os.close(fd)
            raise
        return fd, name

    def open_file(self, path: str, flags: int) -> int:
        """An existing regular file. Nothing else is ever opened: a fifo would block, a device act."""
        with opened(self.target(path)) as pinned:
            mode = os.fstat(pinned).st_mode
            if stat.S_ISDIR(mode):
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            if not stat.S_ISREG(mode):
                raise OSError(errno.ENXIO, os.strerror(errno.ENXIO), path)
            _refuse_kernel_files(pinned, path)
            return os.open(descriptor_path(pinned), flags | _NEVER_BLOCK | os.O_CLOEXEC)

    def create_file(self, path: str) -> int:
        """Open for writing, made if it is not there, through a dangling link too."""
        flags = os.O_WRONLY | os.O_CREAT | _NEVER_BLOCK
        fd = openat2(self._fd, path, flags, mode=0o600, resolve=_IN_ROOT)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.ENXIO, os.strerror(errno.ENXIO), path)
            _refuse_kernel_files(fd, path)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def make_directories(self, path: str, *, uid: int, gid: int) -> None:
        """Every missing directory of `path`, mode 0755, with these host ids."""
        missing: list[str] = []
        while True:
            try:
                fd = self.directory(path)
                break
            except FileNotFoundError:
                path, name = posixpath.split(path)
                missing.append(name)
        while missing:
            with opened(fd):
                fd = _make_directory(fd, missing.pop(), uid=uid, gid=gid)
        os.close(fd)


def _make_directory(parent: int, name: str, *, uid: int, gid: int) -> int:
    _refuse_kernel_files(parent, name)
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:  # someone was faster
        return open_child_directory(parent, name)
    fd = open_child_directory(parent, name)
    os.fchown(fd, uid, gid)
    os.fchmod(fd, 0o755)
    return fd


def _refuse_kernel_files(fd: int, path: str) -> None:
    if is_kernel_filesystem(fd):
        raise InvalidRequest(
            f"{path} is a file of the kernel; run a command in the sandbox to use it"
        )
