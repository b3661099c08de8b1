"""The forward proxy of one sandbox: CONNECT, and plain HTTP by absolute URL (RFC 9110, 9112).

Its listening socket is made inside the sandbox's namespace, so only that sandbox can reach it, and
it dials from the host. A sandbox needs no route and no DNS for it; a program that ignores the proxy
reaches nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import h11

from sandboxes.network import NetworkPolicy
from sandboxes.sandboxd.engines.runc.network.http import (
    Peer,
    forward_request,
    reply,
    split_authority,
)
from sandboxes.sandboxd.engines.runc.network.judging import (
    Denial,
    Judge,
    Refused,
    Resolve,
    Route,
    Unreachable,
)

__all__ = ["Denial", "Proxy"]

_MAX_CONNECTIONS = 128
_CONNECT_TIMEOUT_S = 15.0
_LINGER_S = 2.0
_CHUNK_BYTES = 64 * 1024


@dataclass(eq=False, slots=True)
class _Upstream:
    host: str
    address: str
    handler: asyncio.Task[None]


class Proxy:
    def __init__(self, policy: NetworkPolicy, resolve: Resolve) -> None:
        self._judge = Judge(policy, resolve)
        self._server: asyncio.Server | None = None
        self._upstreams: set[_Upstream] = set()
        self._handlers: set[asyncio.Task[None]] = set()

    async def serve(self, listening: socket.socket) -> None:
        """Takes the socket over."""
        self._server = await asyncio.start_server(self._accept, sock=listening)

    def set_policy(self, policy: NetworkPolicy) -> None:
        """Connections to what is no longer allowed are broken off."""
        self._judge.policy = policy
        for upstream in list(self._upstreams):
            if not self._judge.still_allows(upstream.host, upstream.address):
                upstream.handler.cancel()

    def recent_denials(self) -> list[Denial]:
        return self._judge.recent_denials()

    async def aclose(self) -> None:
        """Stop listening, and break every connection off."""
        if self._server is not None:
            self._server.close()
        for handler in list(self._handlers):
            handler.cancel()
        if self._handlers:
            await asyncio.wait(self._handlers)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = _this_task()
        self._handlers.add(task)
        try:
            await self._serve_client(Peer(h11.SERVER, reader, writer))
            await _linger(reader, writer)
        except (OSError, h11.ProtocolError, TimeoutError, EOFError):
            pass  # a client that breaks off or talks nonsense is its own affair
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            self._handlers.discard(task)
            writer.close()

    async def _serve_client(self, client: Peer) -> None:
        if len(self._handlers) > _MAX_CONNECTIONS:
            await client.next_request()
            await reply(client, 503, "This sandbox has too many connections open; close some")
            return
        while (request := await client.next_request()) is not None:
            try:
                if request.method == b"CONNECT":
                    await self._tunnel(client, request)
                    return
                await self._forward(client, request)
            except Refused as refused:
                await reply(client, 403, str(refused))
            except Unreachable as unreachable:
                await reply(client, 502, str(unreachable))
            except ValueError:
                await reply(client, 400, "This is a proxy; ask it for an http:// URL or to CONNECT")
            if not client.reusable():
                return
            client.connection.start_next_cycle()

    async def _tunnel(self, client: Peer, request: h11.Request) -> None:
        host, port = split_authority(request.target.decode("ascii"))
        reader, writer, route, address = await self._dial(host, port)
        with self._tracked(route, address, writer):
            early = await client.switch_protocol()
            writer.write(early)
            try:
                async with asyncio.TaskGroup() as directions:
                    directions.create_task(_pump(client.reader, writer))
                    directions.create_task(_pump(reader, client.writer))
            except* OSError:
                client.writer.transport.abort()  # either end broke off

    async def _forward(self, client: Peer, request: h11.Request) -> None:
        url = urlsplit(request.target.decode("ascii"))
        if url.scheme != "http":
            raise ValueError(url.scheme)
        port = 80 if url.port is None else url.port
        host, port = split_authority(f"{url.hostname}:{port}")
        reader, writer, route, address = await self._dial(host, port)
        with self._tracked(route, address, writer):
            target = (url.path or "/") + (f"?{url.query}" if url.query else "")
            authority = host if port == 80 else f"{host}:{port}"
            server = Peer(h11.CLIENT, reader, writer)
            await forward_request(client, server, request, target=target, authority=authority)

    async def _dial(
        self, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Route, str]:
        route = await self._judge.route(host, port)
        for address in route.addresses:
            try:
                async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                    reader, writer = await asyncio.open_connection(address, port)
            except (OSError, TimeoutError):
                continue
            return reader, writer, route, address
        raise Unreachable(f"{host} does not answer on port {port}; try again later")

    @contextmanager
    def _tracked(self, route: Route, address: str, writer: asyncio.StreamWriter) -> Iterator[None]:
        upstream = _Upstream(route.host, address, _this_task())
        self._upstreams.add(upstream)
        try:
            # The policy may have changed while it was dialled.
            if not self._judge.still_allows(route.host, address):
                raise Refused(f"{route.host} is no longer in this sandbox's allow list")
            yield
        finally:
            self._upstreams.discard(upstream)
            writer.transport.abort()


def _this_task() -> asyncio.Task[None]:
    task: asyncio.Task[None] | None = asyncio.current_task()
    assert task is not None  # noqa: S101
    return task


async def _linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Closing with something unread would reset the connection, and our answer with it."""
    if writer.is_closing():
        return
    if writer.can_write_eof():
        writer.write_eof()
    async with asyncio.timeout(_LINGER_S):
        while await reader.read(_CHUNK_BYTES):
            continue


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One direction of a tunnel; the end of it is passed on, the other may go on."""
    while chunk := await reader.read(_CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
