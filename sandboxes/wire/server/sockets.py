"""WebSockets between a client and a server in a sandbox, message by message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.types import Message, Receive, Scope, Send
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response as HandshakeResponse
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from sandboxes.client import ByteStream
from sandboxes.errors import SandboxError

__all__ = ["relay_websocket"]

_MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_HANDSHAKE = frozenset(
    {
        b"host",
        b"sec-websocket-key",
        b"sec-websocket-version",
        b"sec-websocket-extensions",
        b"sec-websocket-protocol",
    }
)
_UPSTREAM_BROKE = 1011
_NORMAL = 1000


async def relay_websocket(
    connection: ByteStream,
    headers: list[tuple[bytes, bytes]],
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    """Until either end closes; the other is closed with the same code."""
    await receive()  # the "websocket.connect" that begins every WebSocket scope
    upstream = _Upstream(connection, scope)
    try:
        subprotocol = await upstream.open(headers)
    except (_Refused, SandboxError):
        await send({"type": "websocket.close", "code": _UPSTREAM_BROKE})
        return
    await send({"type": "websocket.accept", "subprotocol": subprotocol})
    tasks = {
        asyncio.ensure_future(_to_client(upstream, send)),
        asyncio.ensure_future(_to_upstream(upstream, receive)),
    }
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Refused(Exception):
    """The server in the sandbox made no WebSocket of it."""


class _Upstream:
    """The sandbox's end, spoken to in whole messages."""

    def __init__(self, connection: ByteStream, scope: Scope) -> None:
        path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
        offered = [Subprotocol(name) for name in scope.get("subprotocols", [])]
        uri = WebSocketURI(False, "localhost", 80, path, scope["query_string"].decode("latin-1"))
        self._connection = connection
        self._protocol = ClientProtocol(
            uri, subprotocols=offered or None, max_size=_MAX_MESSAGE_BYTES
        )
        self._early: list[Frame] = []

    async def open(self, headers: list[tuple[bytes, bytes]]) -> str | None:
        """The subprotocol that the server chose."""
        request = self._protocol.connect()
        for name, value in headers:
            if name == b"host":
                del request.headers["Host"]
                request.headers["Host"] = value.decode("latin-1")
            elif name not in _HANDSHAKE:
                request.headers[name.decode("latin-1")] = value.decode("latin-1")
        self._protocol.send_request(request)
        await self._flush()
        while self._protocol.state is State.CONNECTING:
            data = await self._connection.read()
            if not data:
                raise _Refused
            self._protocol.receive_data(data)
            if self._protocol.handshake_exc is not None:
                raise _Refused
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._early.append(event)
            elif not isinstance(event, HandshakeResponse):
                raise _Refused
        return self._protocol.subprotocol

    async def messages(self) -> AsyncIterator[Message]:
        """As ASGI sends them; the last one closes."""
        fragments: list[bytes] = []
        text = False
        async for frame in self._frames():
            if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
                text = frame.opcode is Opcode.TEXT
            elif frame.opcode is not Opcode.CONT:
                continue
            fragments.append(bytes(frame.data))
            if frame.fin:
                data = b"".join(fragments)
                fragments.clear()
                yield (
                    {"type": "websocket.send", "text": data.decode()}
                    if text
                    else {
                        "type": "websocket.send",
                        "bytes": data,
                    }
                )
        code = self._protocol.close_code or _UPSTREAM_BROKE
        if not 1000 <= code < 5000 or code in (1005, 1006):
            code = _NORMAL if code == 1005 else _UPSTREAM_BROKE
        reason = self._protocol.close_reason or ""
        yield {"type": "websocket.close", "code": code, "reason": reason}

    async def send(self, message: Message) -> None:
        if (text := message.get("text")) is not None:
            self._protocol.send_text(text.encode())
        else:
            self._protocol.send_binary(message["bytes"])
        await self._flush()

    async def close(self, code: int, reason: str) -> None:
        if self._protocol.state is State.OPEN:
            allowed = 1000 <= code < 5000 and code not in (1004, 1005, 1006, 1015)
            self._protocol.send_close(code if allowed else _NORMAL, reason)
            await self._flush()

    async def _frames(self) -> AsyncIterator[Frame]:
        for frame in self._early:
            yield frame
        while True:
            data = await self._connection.read()
            if data:
                self._protocol.receive_data(data)
            else:
                self._protocol.receive_eof()
            await self._flush()  # pongs and the echo of a close
            for event in self._protocol.events_received():
                if isinstance(event, Frame):
                    yield event
            if not data or self._protocol.state is not State.OPEN:
                return

    async def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                await self._connection.write(data)


async def _to_client(upstream: _Upstream, send: Send) -> None:
    async for message in upstream.messages():
        await send(message)


async def _to_upstream(upstream: _Upstream, receive: Receive) -> None:
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            await upstream.close(message.get("code") or _NORMAL, message.get("reason") or "")
            return
        await upstream.send(message)
