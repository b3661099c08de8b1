"""A request's body, read only when and as far as a view asks for it.

So nobody is made to store what was sent before it is known who sent it, and an upload passes
through with flat memory.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import IO, Any

from django.http import HttpRequest

from console.api.errors import ApiError

__all__ = ["ClientGone", "Incoming", "parse_json"]

Receive = Callable[[], Awaitable[Mapping[str, Any]]]

_CHUNK_BYTES = 64 * 1024
_IN_MEMORY_BYTES = 1024 * 1024


class ClientGone(Exception):
    """The connection was closed before the request was complete."""


class Incoming:
    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._complete = asyncio.Event()

    @classmethod
    def of(cls, request: HttpRequest) -> Incoming:
        """Also of a request whose body a server has read already, as Django's own handlers do."""
        found = getattr(request, "incoming", None)
        if not isinstance(found, Incoming):
            found = cls(_already_read(request))
            request.incoming = found  # type: ignore[attr-defined]
        return found

    @property
    def complete(self) -> bool:
        return self._complete.is_set()

    async def chunks(self, limit_bytes: int) -> AsyncGenerator[bytes, None]:
        """ApiError `too_large` past the limit, ClientGone if the rest never comes."""
        size = 0
        while not self.complete:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._complete.set()
                raise ClientGone
            chunk = message.get("body", b"")
            if not message.get("more_body", False):
                self._complete.set()
            size += len(chunk)
            if size > limit_bytes:
                raise ApiError(
                    "too_large",
                    f"The body is larger than {limit_bytes:,} bytes; send less at once.",
                    details={"limit_bytes": limit_bytes},
                )
            if chunk:
                yield chunk

    async def read(self, limit_bytes: int) -> bytes:
        return b"".join([chunk async for chunk in self.chunks(limit_bytes)])

    async def spool(self, limit_bytes: int) -> IO[bytes]:
        """The body in a file at its start, on disk if it is large. To be closed by the caller."""
        file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115
        try:
            async for chunk in self.chunks(limit_bytes):
                file.write(chunk)
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return file

    async def wait_gone(self) -> None:
        """Return once the client has left. Looks only after the body was read."""
        await self._complete.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass


def _already_read(request: HttpRequest) -> Receive:
    async def receive() -> Mapping[str, Any]:
        chunk = request.read(_CHUNK_BYTES)
        return {"type": "http.request", "body": chunk, "more_body": bool(chunk)}

    return receive


def parse_json(body: bytes) -> Any:
    """ApiError `invalid_request` for what is no JSON, or no text that could be passed on."""
    try:
        data = json.loads(body, parse_constant=_no_constant)
        if b"\\u" in body:
            # A lone surrogate is a string to Python, and to nobody else.
            json.dumps(data, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ApiError("invalid_request", f"The body is no valid JSON: {reason}.") from None
    return data


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
