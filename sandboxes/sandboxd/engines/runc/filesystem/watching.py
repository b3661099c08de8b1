"""Watching a directory of a sandbox with inotify(7), one instance a watch.

A watch is set on the descriptor of a directory, so it follows no link, and no descriptor is kept
open: an idle watch holds nothing of the sandbox's mounts.
"""

from __future__ import annotations

import asyncio
import errno
import os
import posixpath
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from inotify_simple import Event, INotify, flags

from sandboxes.errors import Capacity, NotFound, SandboxError
from sandboxes.sandboxd.engines.runc.filesystem.entries import display
from sandboxes.sandboxd.engines.runc.filesystem.root import (
    Root,
    descriptor_path,
    open_child_directory,
    opened,
)
from sandboxes.sandboxd.engines.runc.filesystem.threads import in_thread

__all__ = ["watch"]

FileEvent = tuple[str, str]

_QUEUE_LENGTH = 65536
_MASK = (
    flags.CREATE
    | flags.MODIFY
    | flags.ATTRIB
    | flags.DELETE
    | flags.MOVED_FROM
    | flags.MOVED_TO
    | flags.DELETE_SELF
    | flags.MOVE_SELF
    | flags.ONLYDIR
)
# A move is a rename of the old name and a create of the new one, as fsnotify reports it.
_EVENTS = {
    flags.CREATE: "create",
    flags.MOVED_TO: "create",
    flags.MODIFY: "write",
    flags.ATTRIB: "chmod",
    flags.DELETE: "remove",
    flags.MOVED_FROM: "rename",
}


class _WatchedTree:
    """The inotify side. Every method blocks; one call at a time."""

    def __init__(self, open_root: Callable[[], int], path: str, *, recursive: bool) -> None:
        self._open_root = open_root
        self._path = path
        self._recursive = recursive
        self._inotify: INotify | None = None
        self._base = -1
        self._directories: dict[int, str] = {}
        # What a scan of a new directory found and reported, until the kernel's event for it comes.
        self._announced: set[str] = set()
        self.ended = False

    def start(self) -> int:
        """The descriptor to wait on. Nothing that happens from now on is missed."""
        self._inotify = INotify(nonblocking=True)
        self._add("", announce=False)
        return int(self._inotify.fileno())

    def close(self) -> None:
        if self._inotify is not None:
            self._inotify.close()

    def read(self) -> list[FileEvent]:
        assert self._inotify is not None  # noqa: S101
        found: list[FileEvent] = []
        for event in self._inotify.read(timeout=0):
            if event.mask & flags.Q_OVERFLOW:
                raise Capacity(
                    f"More changed below {self._path} than could be reported; list it and watch again"
                )
            found += self._translate(event)
        return found

    def _translate(self, event: Event) -> list[FileEvent]:
        if event.mask & flags.IGNORED:
            self._directories.pop(event.wd, None)
            return []
        directory = self._directories.get(event.wd)
        if directory is None:
            return []
        if not event.name:
            return self._base_event(event) if event.wd == self._base else []
        name = posixpath.join(directory, event.name)
        kind = next((kind for flag, kind in _EVENTS.items() if event.mask & flag), None)
        if kind is None:
            return []
        found: list[FileEvent] = [(kind, name)]
        if event.mask & flags.CREATE and name in self._announced:
            self._announced.discard(name)
            found = []
        if self._recursive and event.mask & flags.ISDIR:
            if event.mask & flags.MOVED_FROM:
                self._forget(name)
            elif event.mask & (flags.CREATE | flags.MOVED_TO):
                found += self._add(name, announce=bool(event.mask & flags.CREATE))
        return found

    def _base_event(self, event: Event) -> list[FileEvent]:
        if event.mask & (flags.DELETE_SELF | flags.UNMOUNT):
            self.ended = True
            return [("remove", ".")]
        return [("rename", ".")] if event.mask & flags.MOVE_SELF else []

    def _add(self, name: str, *, announce: bool) -> list[FileEvent]:
        """Watch a directory, and those below it. With `announce`, what is already in it is
        reported: it was made before the watch was set."""
        found: list[FileEvent] = []
        pending = [name]
        try:
            with Root(self._open_root) as root, opened(root.directory(self._path)) as base:
                while pending:
                    pending += self._add_one(base, pending.pop(), found, announce=announce)
        except FileNotFoundError:
            if not name:
                raise
        except NotFound:  # the sandbox is gone
            if not name:
                raise
            self.ended = True
        return found

    def _add_one(
        self, base: int, name: str, found: list[FileEvent], *, announce: bool
    ) -> list[str]:
        assert self._inotify is not None  # noqa: S101
        try:
            fd = open_child_directory(base, name) if name else os.dup(base)
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
                return []  # gone or replaced again; the kernel reports that too
            raise
        with opened(fd):
            try:
                watch = self._inotify.add_watch(descriptor_path(fd), _MASK)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                raise Capacity(
                    "The host watches as many directories as it may; "
                    "raise fs.inotify.max_user_watches or watch fewer"
                ) from error
            self._directories[watch] = name
            if not name:
                self._base = watch
            if not self._recursive:
                return []
            below: list[str] = []
            with os.scandir(fd) as entries:
                for entry in entries:
                    child = posixpath.join(name, entry.name)
                    if announce and child not in self._announced:
                        self._announced.add(child)
                        found.append(("create", child))
                        if entry.is_file(follow_symlinks=False) and _is_filled(entry):
                            found.append(("write", child))
                    if entry.is_dir(follow_symlinks=False):
                        below.append(child)
            return below

    def _forget(self, name: str) -> None:
        assert self._inotify is not None  # noqa: S101
        for watch, directory in list(self._directories.items()):
            if directory == name or directory.startswith(name + "/"):
                del self._directories[watch]
                try:
                    self._inotify.rm_watch(watch)
                except OSError:
                    continue  # it went by itself


def _is_filled(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.stat(follow_symlinks=False).st_size > 0
    except FileNotFoundError:
        return False


@asynccontextmanager
async def watch(
    open_root: Callable[[], int], path: str, *, recursive: bool
) -> AsyncIterator[AsyncIterator[FileEvent]]:
    tree = _WatchedTree(open_root, path, recursive=recursive)
    queue: asyncio.Queue[FileEvent | SandboxError | None] = asyncio.Queue(_QUEUE_LENGTH)
    loop = asyncio.get_running_loop()
    try:
        fd = await in_thread(path, tree.start)
        pump = loop.create_task(_pump(tree, path, fd, queue))
        try:
            yield _events(queue)
        finally:
            pump.cancel()
            await asyncio.wait([pump])
    finally:
        tree.close()


async def _pump(
    tree: _WatchedTree, path: str, fd: int, queue: asyncio.Queue[FileEvent | SandboxError | None]
) -> None:
    """Reads also while nobody takes events, so that new directories are watched at once."""
    try:
        while not tree.ended:
            await _readable(fd)
            for event in await in_thread(path, tree.read):
                await queue.put(event)
        await queue.put(None)
    except SandboxError as error:
        await queue.put(error)


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, _settle, ready)
    try:
        await ready
    finally:
        loop.remove_reader(fd)


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def _events(
    queue: asyncio.Queue[FileEvent | SandboxError | None],
) -> AsyncIterator[FileEvent]:
    while (event := await queue.get()) is not None:
        if isinstance(event, SandboxError):
            raise event
        kind, name = event
        yield kind, display(name)
