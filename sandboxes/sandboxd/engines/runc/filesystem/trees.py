"""Removing a whole tree that a hostile program may be rearranging meanwhile.

One descriptor is open at a time, whatever the depth: the way down is by name, below the directory
at hand, and the way up by `..`, checked to lead to the directory that the way down came from.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from sandboxes.sandboxd.engines.runc.filesystem.kernel import (
    RESOLVE_NO_MAGICLINKS,
    RESOLVE_NO_XDEV,
    openat2,
)
from sandboxes.sandboxd.engines.runc.filesystem.root import open_child_directory

__all__ = ["remove_tree"]

_MAX_PASSES = 16  # over one directory that a program keeps filling
_NOT_A_DIRECTORY = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


@dataclass(slots=True)
class _Level:
    """A directory that is being emptied: its name in its parent, and which one that was."""

    name: str
    parent: tuple[int, int]
    below: list[str]
    passes: int = 1


def remove_tree(parent: int, name: str) -> None:
    """The entry `name` of the directory `parent`, and all below it. Links are removed, never
    followed. Missing entries are no error. Raises OSError; ESTALE or ENOTEMPTY if a program moved
    or kept filling a directory meanwhile."""
    if _unlinked(parent, name):
        return
    here = os.dup(parent)
    levels: list[_Level] = []
    try:
        pending = name
        while True:
            entered = _enter(here, pending)
            if entered is not None:
                below = _remove_files(entered)
                levels.append(_Level(pending, _identity(here), below))
                os.close(here)
                here = entered
            while levels and not levels[-1].below:
                here = _leave(here, levels)
            if not levels:
                return
            pending = levels[-1].below.pop()
    finally:
        os.close(here)


def _enter(here: int, name: str) -> int | None:
    """None if it is no directory any more."""
    try:
        return open_child_directory(here, name, extra_resolve=RESOLVE_NO_XDEV)
    except OSError as error:
        if error.errno in _NOT_A_DIRECTORY:
            return None
        raise


def _leave(here: int, levels: list[_Level]) -> int:
    """Remove the directory at hand and return its parent, unless something new is in it."""
    level = levels[-1]
    up = openat2(
        here, "..", os.O_RDONLY | os.O_DIRECTORY, resolve=RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS
    )
    try:
        if _identity(up) != level.parent:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), level.name)
        try:
            os.rmdir(level.name, dir_fd=up)
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST} or level.passes >= _MAX_PASSES:
                raise
            level.passes += 1
            level.below = _remove_files(here)
            if level.below:
                os.close(up)
                return here
            os.rmdir(level.name, dir_fd=up)
    except BaseException:
        os.close(up)
        raise
    levels.pop()
    os.close(here)
    return up


def _remove_files(directory: int) -> list[str]:
    """Everything but the directories, whose names are returned."""
    return [name for name in os.listdir(directory) if not _unlinked(directory, name)]


def _unlinked(directory: int, name: str) -> bool:
    """False if the entry is a directory."""
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        return True
    except IsADirectoryError:
        return False
    return True


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino
