"""`filesystem.Filesystem`: entries, directories and watches. File contents travel by /files."""

from __future__ import annotations

import posixpath
import stat
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from sandboxes.errors import InvalidRequest, NotFound, SandboxError
from sandboxes.sandboxd.engines.base import Engine, FileInfo, FileSystem
from sandboxes.sandboxd.records import rfc3339
from sandboxes.sandboxd.routes.paths import resolve_path
from sandboxes.sandboxd.routes.rpc import Call, ClientStream, ServerStream, StreamBroken, Unary
from sandboxes.sandboxd.watchers import WatchBroken, WatchEnded
from sandboxes.types import FileType
from sandboxes.wire.connect import Code, ConnectError
from sandboxes.wire.messages import EntryInfo, FilesystemEvent
from sandboxes.wire.server.problems import connect_error

__all__ = ["FilesystemService", "entry_info", "go_permissions"]

_TYPES = {
    FileType.FILE: "FILE_TYPE_FILE",
    FileType.DIRECTORY: "FILE_TYPE_DIRECTORY",
    FileType.SYMLINK: "FILE_TYPE_SYMLINK",
    FileType.OTHER: "FILE_TYPE_UNSPECIFIED",
}


class FilesystemService:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.methods: dict[str, Unary | ServerStream | ClientStream] = {
            "/filesystem.Filesystem/Stat": Unary(self.stat),
            "/filesystem.Filesystem/MakeDir": Unary(self.make_dir),
            "/filesystem.Filesystem/Move": Unary(self.move),
            "/filesystem.Filesystem/ListDir": Unary(self.list_dir),
            "/filesystem.Filesystem/Remove": Unary(self.remove),
            "/filesystem.Filesystem/WatchDir": ServerStream(self.watch_dir),
            "/filesystem.Filesystem/CreateWatcher": Unary(self.create_watcher),
            "/filesystem.Filesystem/GetWatcherEvents": Unary(self.get_watcher_events),
            "/filesystem.Filesystem/RemoveWatcher": Unary(self.remove_watcher),
        }

    async def stat(self, call: Call, message: Mapping[str, Any]) -> Mapping[str, Any]:
        files, path = await self._locate(call, message)
        return {"entry": entry_info(await files.stat(path))}

    async def make_dir(self, call: Call, message: Mapping[str, Any]) -> Mapping[str, Any]:
        files, path = await self._locate(call, message)
        try:
            return {"entry": entry_info(await files.make_dir(path, owner=call.user))}
        except SandboxError as error:
            raise connect_error(error, conflict=Code.ALREADY_EXISTS) from None

    async def move(self, call: Call, message: Mapping[str, Any]) -> Mapping[str, Any]:
        files, source = await self._locate(call, message, "source")
        _, destination = await self._locate(call, message, "destination")
        return {"entry": entry_info(await files.move(source, destination, owner=call.user))}

    async def list_dir(self, call: Call, message: Mapping[str, Any]) -> Mapping[str, Any]:
        files, path = await self._locate(call, message)
        depth = message.get("depth") or 1
        if not isinstance(depth, int) or depth < 1:
            raise ConnectError(Code.INVALID_ARGUMENT, "depth must be a positive number")
        return {"entries": [entry_info(info) for info in await files.list(path, depth=depth)]}

    async def remove(self, call: Call, message: Mapping[str, Any]) -> Mapping[str, Any]:
        files, path = await self._locate(call, message)
        await files.remove(path)
        return {}

    async def watch_dir(
        self, call: Call, message: Mapping[str, Any]
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        files, path = await self._locate(call, message)
        recursive = message.get("recursive") is True
        describe = message.get("includeEntry") is True
        async with call.live.watchers.watching(files, path, recursive=recursive) as watch:
            yield {"start": {}}
            while True:
                try:
                    events = await watch.wait(call.keepalive_s)
                except WatchEnded as ended:
                    raise ConnectError(Code.NOT_FOUND, str(ended)) from None
                except WatchBroken:
                    raise StreamBroken from None
                if not events:
                    yield {"keepalive": {}}
                for event in events:
                    yield {"filesystem": await _event(files, path, event, describe=describe)}

    async def create_watcher(self, call: Call, message: Mapping[str, Any]) -> Mapping[str, Any]:
        files, path = await self._locate(call, message)
        watcher_id = await call.live.watchers.create(
            files,
            path,
            recursive=message.get("recursive") is True,
            describe=message.get("includeEntry") is True,
        )
        return {"watcherId": watcher_id}

    async def get_watcher_events(self, call: Call, message: Mapping[str, Any]) -> Mapping[str, Any]:
        watcher = call.live.watchers.find(_watcher_id(message))
        files = self._engine.files(call.live.id)
        return {
            "events": [
                await _event(files, watcher.path, event, describe=watcher.describe)
                for event in watcher.watch.take()
            ]
        }

    async def remove_watcher(self, call: Call, message: Mapping[str, Any]) -> Mapping[str, Any]:
        await call.live.watchers.remove(_watcher_id(message))
        return {}

    async def _locate(
        self, call: Call, message: Mapping[str, Any], field: str = "path"
    ) -> tuple[FileSystem, str]:
        raw = message.get(field, "")
        if not isinstance(raw, str):
            raise ConnectError(Code.INVALID_ARGUMENT, f"{field} must be a string")
        files = self._engine.files(call.live.id)
        return files, await resolve_path(files, raw, call.user)


def entry_info(info: FileInfo) -> EntryInfo:
    """A link is reported with the type of what it points to, as envd does."""
    shown = info.target_type if info.type is FileType.SYMLINK and info.target_type else info.type
    entry: EntryInfo = {
        "name": info.name,
        "type": _TYPES[shown],
        "path": info.path,
        "permissions": go_permissions(info),
        "owner": info.owner,
        "group": info.group,
        "modifiedTime": rfc3339(info.modified_at.timestamp()),
    }
    if info.size_bytes:
        entry["size"] = str(info.size_bytes)
    if info.mode & 0o777:
        entry["mode"] = info.mode & 0o777
    if info.type is FileType.SYMLINK:
        target = posixpath.join(posixpath.dirname(info.path), info.link_target or "")
        entry["symlinkTarget"] = posixpath.normpath(target)
    if info.metadata:
        entry["metadata"] = dict(info.metadata)
    return entry


def go_permissions(info: FileInfo) -> str:
    """`-rw-r--r--` as Go's FileMode prints it: kind and special bits first, each a letter."""
    letters = {FileType.DIRECTORY: "d", FileType.SYMLINK: "L"}.get(info.type, "")
    for bit, letter in ((stat.S_ISUID, "u"), (stat.S_ISGID, "g"), (stat.S_ISVTX, "t")):
        letters += letter if info.mode & bit else ""
    triples = stat.filemode(stat.S_IFREG | (info.mode & 0o777))[1:]
    return (letters or "-") + triples


async def _event(
    files: FileSystem, directory: str, event: tuple[str, str], *, describe: bool
) -> FilesystemEvent:
    kind, name = event
    message: FilesystemEvent = {"name": name, "type": f"EVENT_TYPE_{kind.upper()}"}
    if describe and kind not in ("remove", "rename"):
        try:
            message["entry"] = entry_info(await files.stat(f"{directory.rstrip('/')}/{name}"))
        except (NotFound, InvalidRequest):
            return message
    return message


def _watcher_id(message: Mapping[str, Any]) -> str:
    watcher_id = message.get("watcherId")
    if not isinstance(watcher_id, str):
        raise ConnectError(Code.INVALID_ARGUMENT, "watcherId is required")
    return watcher_id
