"""HTTP/1.1 between two peers of the proxy, parsed strictly by h11 on both sides, so that what is
passed on is what was judged."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import h11

__all__ = ["Peer", "forward_request", "reply", "split_authority"]

_HEAD_TIMEOUT_S = 60.0
_MAX_HEAD_BYTES = 32 * 1024
_READ_BYTES = 64 * 1024
_AUTHORITY = re.compile(r"([A-Za-z0-9._-]{1,253}):([0-9]{1,5})", re.ASCII)

# RFC 9110 section 7.6.1, and those meant for this proxy alone. h11 sets the framing anew.
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)

Headers = list[tuple[bytes, bytes]]


class Peer:
    """One side's connection. Raises h11.ProtocolError for what is no proper HTTP."""

    def __init__(self, role: type[h11.CLIENT] | type[h11.SERVER], reader: Any, writer: Any) -> None:
        self.connection = h11.Connection(role, max_incomplete_event_size=_MAX_HEAD_BYTES)
        self.reader: asyncio.StreamReader = reader
        self.writer: asyncio.StreamWriter = writer

    async def send(self, event: Any) -> None:
        data = self.connection.send(event)
        if data:
            self.writer.write(data)
            await self.writer.drain()

    async def next_event(self) -> Any:
        while True:
            event = self.connection.next_event()
            if event is not h11.NEED_DATA:
                return event
            self.connection.receive_data(await self.reader.read(_READ_BYTES))

    async def next_request(self) -> h11.Request | None:
        """None when the client has gone or says no more."""
        async with asyncio.timeout(_HEAD_TIMEOUT_S):
            event = await self.next_event()
        return event if isinstance(event, h11.Request) else None

    async def switch_protocol(self) -> bytes:
        """Accept a CONNECT; what the client has sent beyond it already."""
        while await self.next_event() is not h11.PAUSED:
            continue
        await self.send(h11.Response(status_code=200, headers=[], reason=b"Connection established"))
        data, _ = self.connection.trailing_data
        return bytes(data)

    def reusable(self) -> bool:
        return self.connection.our_state is h11.DONE and self.connection.their_state is h11.DONE


def split_authority(authority: str) -> tuple[str, int]:
    """host:port of a CONNECT. ValueError for anything else, IPv6 included."""
    match = _AUTHORITY.fullmatch(authority)
    if match is None or not 0 < int(match[2]) < 65536:
        raise ValueError(authority)
    return match[1], int(match[2])


async def reply(client: Peer, status: int, sentence: str) -> None:
    """A short answer of our own. The connection is closed after it, unless the request was whole."""
    if client.connection.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
        return
    body = f"Skillyard: {sentence}.\n".encode()
    headers = [
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("Connection", "close"),
    ]
    await client.send(h11.Response(status_code=status, headers=headers))
    await client.send(h11.Data(data=body))
    await client.send(h11.EndOfMessage())


async def forward_request(
    client: Peer, server: Peer, request: h11.Request, *, target: str, authority: str
) -> None:
    """Pass a request on and its answer back, both streamed. The Host header is the URL's, whatever
    the client wrote, so that no other site behind the same address is reached by it."""
    headers = [(name, value) for name, value in _end_to_end(request.headers) if name != b"host"]
    headers = [(b"Host", authority.encode("ascii")), *headers, (b"Connection", b"close")]
    if any(name.lower() == b"transfer-encoding" for name, _ in request.headers):
        headers.append((b"Transfer-Encoding", b"chunked"))
    await server.send(h11.Request(method=request.method, target=target, headers=headers))
    upload = asyncio.create_task(_pass_body(client, server))
    try:
        await _pass_answer(server, client)
    finally:
        upload.cancel()
        await asyncio.wait([upload])
        if not upload.cancelled():
            upload.exception()  # an answer that came is worth more than a failed upload


async def _pass_body(client: Peer, server: Peer) -> None:
    while True:
        if client.connection.they_are_waiting_for_100_continue:
            await client.send(h11.InformationalResponse(status_code=100, headers=[]))
        event = await client.next_event()
        if isinstance(event, h11.Data):
            await server.send(h11.Data(data=event.data))
        elif isinstance(event, h11.EndOfMessage):
            await server.send(h11.EndOfMessage())
            return
        else:
            raise EOFError


async def _pass_answer(server: Peer, client: Peer) -> None:
    while True:
        event = await server.next_event()
        if isinstance(event, h11.Response):
            headers = _end_to_end(event.headers)
            answer = h11.Response(
                status_code=event.status_code, reason=event.reason, headers=headers
            )
            await client.send(answer)
        elif isinstance(event, h11.Data):
            await client.send(h11.Data(data=event.data))
        elif isinstance(event, h11.EndOfMessage):
            await client.send(h11.EndOfMessage())
            return
        elif isinstance(event, h11.ConnectionClosed):
            raise EOFError


def _end_to_end(headers: Any) -> Headers:
    named = {
        token.strip().lower()
        for name, value in headers
        if name == b"connection"
        for token in value.split(b",")
    }
    return [
        (name, value) for name, value in headers if name not in _HOP_BY_HOP and name not in named
    ]
