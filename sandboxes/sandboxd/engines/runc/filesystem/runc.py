"""`RuncFileSystem`: the FileSystem interface over the root of a running sandbox."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager

from sandboxes.errors import Conflict, InvalidRequest
from sandboxes.sandboxd.engines.base import FileInfo, FileSystem
from sandboxes.sandboxd.engines.runc.filesystem import entries, watching
from sandboxes.sandboxd.engines.runc.filesystem.accounts import Accounts
from sandboxes.sandboxd.engines.runc.filesystem.copying import move_entry
from sandboxes.sandboxd.engines.runc.filesystem.root import Root, normal_path, opened
from sandboxes.sandboxd.engines.runc.filesystem.streams import FileReader, OpenFile, copy_in
from sandboxes.sandboxd.engines.runc.filesystem.threads import in_thread
from sandboxes.sandboxd.engines.runc.filesystem.trees import remove_tree

__all__ = ["RuncFileSystem"]


class RuncFileSystem(FileSystem):
    """`open_root` returns a new descriptor of the sandbox's root directory (O_PATH is enough),
    which is closed after each operation, or raises NotFound. `id_shift` is what is added to a
    sandbox's uid and gid on the host.

    A sandbox's programs can't make an operation leave the root, block it, or reach a file of the
    kernel with the host's privileges.
    """

    def __init__(self, open_root: Callable[[], int], *, id_shift: int) -> None:
        self._open_root = open_root
        self._shift = id_shift

    async def home(self, user: str) -> str:
        def look_up() -> str:
            with Root(self._open_root) as root:
                return self._accounts(root).account(user).home

        return await in_thread("/etc/passwd", look_up)

    async def stat(self, path: str) -> FileInfo:
        path = normal_path(path)

        def look() -> FileInfo:
            with Root(self._open_root) as root, opened(root.entry(path)) as fd:
                return entries.describe(root, self._accounts(root), path, fd)

        return await in_thread(path, look)

    async def list(self, path: str, *, depth: int) -> list[FileInfo]:
        path = normal_path(path)
        if depth < 1:
            raise InvalidRequest("The depth of a listing must be 1 or more; give 1 for one level")

        def walk() -> list[FileInfo]:
            with Root(self._open_root) as root:
                return entries.list_entries(root, self._accounts(root), path, depth=depth)

        return await in_thread(path, walk)

    async def read(
        self, path: str, *, offset: int = 0, length: int | None = None
    ) -> AsyncIterator[bytes]:
        if not 0 <= offset < 1 << 63 or (length is not None and length < 0):
            raise InvalidRequest("An offset or length is out of range; give zero or more bytes")
        path = normal_path(path)
        return await FileReader.open(self._open_root, path, offset=offset, length=length)

    async def write(
        self,
        path: str,
        data: AsyncIterable[bytes],
        *,
        owner: str,
        metadata: Mapping[str, str] | None = None,
    ) -> FileInfo:
        """An existing file keeps its mode, as with any program that writes in place. `metadata`
        replaces all that the file had; None leaves it as it is."""
        path = normal_path(path)
        if path == "/":
            raise InvalidRequest("/ is a directory; name a file in it")
        file = OpenFile()

        def start() -> None:
            with Root(self._open_root) as root:
                file.fd = _open_for_writing(root, self._accounts(root), path, owner)
            if metadata is not None:
                entries.replace_metadata(file.fd, metadata)

        def finish() -> FileInfo:
            with Root(self._open_root) as root:
                return entries.describe(root, self._accounts(root), path, file.fd)

        try:
            await in_thread(path, start)
            await copy_in(file.fd, path, data)
            return await in_thread(path, finish)
        finally:
            file.close()

    async def make_dir(self, path: str, *, owner: str) -> FileInfo:
        path = normal_path(path)

        def make() -> FileInfo:
            with Root(self._open_root) as root:
                accounts = self._accounts(root)
                uid, gid = accounts.host_ids(owner)
                _refuse_existing(root, path)
                root.make_directories(path, uid=uid, gid=gid)
                with opened(root.entry(path)) as fd:
                    return entries.describe(root, accounts, path, fd)

        return await in_thread(path, make)

    async def move(self, source: str, destination: str, *, owner: str) -> FileInfo:
        """Replaces a file that is in the way, as rename(2) does. The entry keeps its own owner."""
        source, destination = normal_path(source), normal_path(destination)
        if (destination + "/").startswith(source + "/") and source != destination:
            raise InvalidRequest(f"{source} can't be moved into itself; name another place")

        def move() -> FileInfo:
            with Root(self._open_root) as root:
                accounts = self._accounts(root)
                uid, gid = accounts.host_ids(owner)
                move_entry(root, source, destination, uid=uid, gid=gid)
                with opened(root.entry(destination)) as fd:
                    return entries.describe(root, accounts, destination, fd)

        return await in_thread(source, move)

    async def remove(self, path: str) -> None:
        path = normal_path(path)

        def remove() -> None:
            with Root(self._open_root) as root:
                try:
                    parent, name = root.parent(path)
                except (FileNotFoundError, NotADirectoryError):
                    return
                with opened(parent):
                    remove_tree(parent, name)

        await in_thread(path, remove)

    def watch(
        self, path: str, *, recursive: bool
    ) -> AbstractAsyncContextManager[AsyncIterator[tuple[str, str]]]:
        """A moved entry is a rename of its old name and a create of its new one. When the watched
        directory goes, ("remove", ".") is the last event."""
        return watching.watch(self._open_root, normal_path(path), recursive=recursive)

    def _accounts(self, root: Root) -> Accounts:
        return Accounts(root, id_shift=self._shift)


def _open_for_writing(root: Root, accounts: Accounts, path: str, owner: str) -> int:
    uid, gid = accounts.host_ids(owner)
    try:
        fd, mode = root.open_file(path, os.O_WRONLY | os.O_TRUNC), None
    except FileNotFoundError:
        root.make_directories(os.path.dirname(path), uid=uid, gid=gid)
        fd, mode = root.create_file(path), 0o644
    try:
        if mode is None:
            os.ftruncate(fd, 0)
        os.fchown(fd, uid, gid)
        if mode is not None:
            os.fchmod(fd, mode)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _refuse_existing(root: Root, path: str) -> None:
    try:
        fd = root.target(path)
    except FileNotFoundError:
        return
    with opened(fd):
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            raise InvalidRequest(f"{path} exists and is no directory; choose another name")
    raise Conflict(f"{path} exists already; use it as it is")
