"""Byte streams, for what is relayed and not understood."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import cast
from urllib.parse import SplitResult, urlsplit

from sandboxes.client import ByteStream
from sandboxes.errors import Unavailable
from sandboxes.wire.transport import CONNECT_TIMEOUT_S, Dial, tls_context

__all__ = ["SocketStream", "open_stream"]

_MOST_UNREAD_BYTES = 1024 * 1024


class SocketStream(asyncio.Protocol, ByteStream):
    """Chunks are handed on as they came from the socket, without being copied or joined: asyncio's own
    streams copy each byte twice, which is most of what relaying a large file would cost."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._unread = 0
        self._ended = False
        self._failure: Exception | None = None
        self._arrival = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._transport: asyncio.Transport

    async def read(self) -> bytes:
        while not self._chunks:
            if self._failure is not None:
                raise Unavailable("The backend broke the connection off") from self._failure
            if self._ended:
                return b""
            self._arrival.clear()
            await self._arrival.wait()
        chunk = self._chunks.popleft()
        self._unread -= len(chunk)
        if not self._chunks and not self._ended:
            self._transport.resume_reading()
        return chunk

    async def write(self, data: bytes) -> None:
        if self._failure is not None:
            raise Unavailable("The backend broke the connection off") from self._failure
        self._transport.write(data)
        if not self._room.is_set():
            await self._room.wait()

    async def aclose(self) -> None:
        self._transport.close()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._chunks.append(data)
        self._unread += len(data)
        if self._unread > _MOST_UNREAD_BYTES:
            self._transport.pause_reading()
        self._arrival.set()

    def eof_received(self) -> bool:
        self._ended = True
        self._arrival.set()
        return True  # what is still to be sent may be sent

    def connection_lost(self, error: Exception | None) -> None:
        self._failure = error
        self._ended = True
        self._arrival.set()
        self._room.set()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()


async def open_stream(dial: Dial, url: str) -> SocketStream:
    """A connection to where this URL is served. Unavailable if nothing answers there."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            if dial.socket_path:
                _, stream = await loop.create_unix_connection(SocketStream, dial.socket_path)
                return stream
            return await _open_tcp(dial, urlsplit(url))
    except (OSError, TimeoutError) as error:
        raise Unavailable(
            "The backend's data plane does not answer", op="dial", detail=f"{error!r}"
        ) from error


async def _open_tcp(dial: Dial, url: SplitResult) -> SocketStream:
    loop = asyncio.get_running_loop()
    secure = url.scheme == "https"
    target = urlsplit(f"//{dial.address}") if dial.address else url
    host = target.hostname or ""
    port = target.port or url.port or (443 if secure else 80)
    addresses = [host] if dial.guard is None else await dial.guard.addresses(host, port)
    failure: OSError | None = None
    for address in addresses:
        try:
            _, stream = await loop.create_connection(
                SocketStream,
                address,
                port,
                ssl=tls_context(dial.ca_pem) if secure else None,
                server_hostname=url.hostname if secure else None,
            )
        except OSError as error:
            failure = error
        else:
            return stream
    raise failure or OSError(f"{host} has no address")
