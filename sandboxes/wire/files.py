"""Files of a sandbox, over envd's `filesystem.Filesystem` and `/files`."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import httpx

from sandboxes.client import FileStore
from sandboxes.errors import Conflict, InvalidRequest
from sandboxes.types import DEFAULT_USER, FileEntry, FileType, Sandbox
from sandboxes.wire.connect import Code
from sandboxes.wire.envd import CALL_TIMEOUT_S, Envd
from sandboxes.wire.failures import from_transport, not_the_protocol

__all__ = ["EnvdFiles"]

_IDLE_S = 60.0
"""How long a transfer may stand still."""
_OCTET_STREAM_SINCE = (0, 5, 7)

_TYPES = {
    "FILE_TYPE_FILE": FileType.FILE,
    "FILE_TYPE_DIRECTORY": FileType.DIRECTORY,
    "FILE_TYPE_SYMLINK": FileType.SYMLINK,
}


class EnvdFiles(FileStore):
    def __init__(self, envd: Envd) -> None:
        self._envd = envd

    @asynccontextmanager
    async def read(
        self, sandbox: Sandbox, path: str, *, user: str = DEFAULT_USER
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        async with self._envd.plane.stream(
            "read file",
            "GET",
            self._envd.url(sandbox, "files"),
            params={"path": self._checked(path), "username": user},
            headers=self._envd.headers(sandbox),
            answer_within_s=CALL_TIMEOUT_S,
            idle_s=_IDLE_S,
        ) as response:
            if response.status_code != httpx.codes.OK:
                answer = await self._envd.whole("read file", response)
                raise await self._envd.refusal("read file", sandbox, answer, about=path)
            yield self._chunks(response)

    async def _chunks(self, response: httpx.Response) -> AsyncIterator[bytes]:
        try:
            async for chunk in response.aiter_raw():
                yield chunk
        except httpx.HTTPError as error:
            raise from_transport(self._envd.service, "read file", error) from error

    async def write(
        self,
        sandbox: Sandbox,
        path: str,
        data: bytes | AsyncIterable[bytes],
        *,
        user: str = DEFAULT_USER,
    ) -> None:
        source = None if isinstance(data, bytes) else _Source(data)
        content: bytes | AsyncIterable[bytes] = data if source is None else source.chunks()
        kind = "application/octet-stream"
        if self._envd.version < _OCTET_STREAM_SINCE:
            boundary = uuid.uuid4().hex
            kind = f"multipart/form-data; boundary={boundary}"
            content = _multipart(content, boundary)
        async with self._envd.plane.stream(
            "write file",
            "POST",
            self._envd.url(sandbox, "files"),
            content=content,
            params={"path": self._checked(path), "username": user},
            headers={**self._envd.headers(sandbox), "Content-Type": kind},
            answer_within_s=None,
            idle_s=_IDLE_S,
        ) as response:
            answer = await self._envd.whole("write file", response)
        if source is not None and source.failure is not None:
            raise source.failure
        if not answer.ok:
            raise await self._envd.refusal("write file", sandbox, answer, about=path)
        if not answer.body.lstrip().startswith(b"["):
            raise not_the_protocol(self._envd.service, "write file", answer.status, answer.body)

    async def list(
        self, sandbox: Sandbox, path: str, *, depth: int = 1, user: str = DEFAULT_USER
    ) -> list[FileEntry]:
        message = {"path": self._checked(path), "depth": depth}
        reply = await self._call("ListDir", sandbox, message, user=user)
        entries = [self._entry(item) for item in reply.get("entries") or ()]
        return sorted(entries, key=lambda entry: entry.path)

    async def stat(self, sandbox: Sandbox, path: str, *, user: str = DEFAULT_USER) -> FileEntry:
        reply = await self._call("Stat", sandbox, {"path": self._checked(path)}, user=user)
        return self._entry(reply.get("entry"))

    async def make_dir(self, sandbox: Sandbox, path: str, *, user: str = DEFAULT_USER) -> None:
        try:
            await self._call("MakeDir", sandbox, {"path": self._checked(path)}, user=user)
        except Conflict as error:
            # Said of a directory only; an existing file is invalid_argument.
            if not error.detail.startswith(Code.ALREADY_EXISTS):
                raise

    async def move(
        self, sandbox: Sandbox, source: str, target: str, *, user: str = DEFAULT_USER
    ) -> None:
        await self._envd.call(
            "move file",
            sandbox,
            "filesystem.Filesystem/Move",
            {"source": self._checked(source), "destination": self._checked(target)},
            user=user,
            about=source,
        )

    async def remove(self, sandbox: Sandbox, path: str, *, user: str = DEFAULT_USER) -> None:
        await self._call("Remove", sandbox, {"path": self._checked(path)}, user=user)

    async def _call(
        self, method: str, sandbox: Sandbox, message: Mapping[str, Any], *, user: str
    ) -> Mapping[str, Any]:
        return await self._envd.call(
            f"{method} file",
            sandbox,
            f"filesystem.Filesystem/{method}",
            message,
            user=user,
            about=message["path"],
        )

    def _checked(self, path: str) -> str:
        """Envd would resolve a relative path against a home; the contract has only absolute ones."""
        if not path.startswith("/") or "\0" in path:
            raise InvalidRequest(
                f"“{path}” is no absolute path; start it with / and leave out NUL bytes.",
                provider=self._envd.service.provider,
                op="files",
            )
        return path

    def _entry(self, item: Any) -> FileEntry:
        if not isinstance(item, dict) or not isinstance(item.get("path"), str):
            raise self._envd.odd("files", item)
        link_target = item.get("symlinkTarget") or None
        is_link = bool(item.get("isSymlink") or link_target)
        return FileEntry(
            name=str(item.get("name") or ""),
            path=item["path"],
            type=FileType.SYMLINK if is_link else _TYPES.get(str(item.get("type")), FileType.OTHER),
            size_bytes=int(item.get("size") or 0),  # int64: a string in proto3 JSON
            mode=int(item.get("mode") or 0) & 0o7777,
            owner=str(item.get("owner") or ""),
            group=str(item.get("group") or ""),
            modified_at=_time(item.get("modifiedTime")),
            link_target=link_target,
        )


def _time(value: object) -> datetime:
    return (
        datetime.fromisoformat(value)
        if isinstance(value, str)
        else datetime.fromtimestamp(0, tz=UTC)
    )


class _Source:
    """What a caller gives to be written. If it fails, the upload is ended as if it were whole: a request
    that is broken off may be carried out at any time later, and one that was answered may not."""

    def __init__(self, data: AsyncIterable[bytes]) -> None:
        self._data = data
        self.failure: Exception | None = None

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._data:
                yield chunk
        except Exception as error:  # the caller's own iterable may raise anything
            self.failure = error


async def _multipart(data: bytes | AsyncIterable[bytes], boundary: str) -> AsyncIterator[bytes]:
    """One file as envd older than 0.5.7 wants it. The path travels in the query."""
    yield (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="file"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    ).encode()
    if isinstance(data, bytes):
        yield data
    else:
        async for chunk in data:
            yield chunk
    yield f"\r\n--{boundary}--\r\n".encode()
