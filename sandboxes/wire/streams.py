"""Byte streams, for what is relayed and not understood."""

from __future__ import annotations

import asyncio
from urllib.parse import SplitResult, urlsplit

from sandboxes.client import ByteStream
from sandboxes.errors import Unavailable
from sandboxes.wire.transport import CONNECT_TIMEOUT_S, Dial, tls_context

__all__ = ["SocketStream", "open_stream"]

_BUFFER_BYTES = 512 * 1024


class SocketStream(ByteStream):
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        try:
            return await self._reader.read(_BUFFER_BYTES)
        except OSError as error:
            raise Unavailable("The backend broke the connection off") from error

    async def write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise Unavailable("The backend broke the connection off") from error

    async def aclose(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            return  # it was broken already


async def open_stream(dial: Dial, url: str) -> SocketStream:
    """A connection to where this URL is served. Unavailable if nothing answers there."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            if dial.socket_path:
                return SocketStream(
                    *await asyncio.open_unix_connection(dial.socket_path, limit=_BUFFER_BYTES)
                )
            return await _open_tcp(dial, urlsplit(url))
    except (OSError, TimeoutError) as error:
        raise Unavailable(
            "The backend's data plane does not answer", op="dial", detail=f"{error!r}"
        ) from error


async def _open_tcp(dial: Dial, url: SplitResult) -> SocketStream:
    secure = url.scheme == "https"
    target = urlsplit(f"//{dial.address}") if dial.address else url
    host = target.hostname or ""
    port = target.port or url.port or (443 if secure else 80)
    addresses = [host] if dial.guard is None else await dial.guard.addresses(host, port)
    failure: OSError | None = None
    for address in addresses:
        try:
            reader, writer = await asyncio.open_connection(
                address,
                port,
                ssl=tls_context(dial.ca_pem) if secure else None,
                server_hostname=url.hostname if secure else None,
                limit=_BUFFER_BYTES,
            )
        except OSError as error:
            failure = error
        else:
            return SocketStream(reader, writer)
    raise failure or OSError(f"{host} has no address")
