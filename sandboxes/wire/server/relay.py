"""Relaying one HTTP request over a byte stream, both ways at once, with nothing kept of it."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any

import h11
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sandboxes.client import ByteStream
from sandboxes.errors import SandboxError
from sandboxes.wire.messages import (
    ACCESS_TOKEN_HEADER,
    API_KEY_HEADER,
    SANDBOX_ID_HEADER,
    SANDBOX_PORT_HEADER,
    TRAFFIC_TOKEN_HEADER,
)
from sandboxes.wire.server.asgi import body_chunks
from sandboxes.wire.server.problems import json_error

__all__ = [
    "HOP_BY_HOP",
    "OURS",
    "Judge",
    "RawHeaders",
    "forwarded",
    "relay_http",
    "request_target",
    "without",
]

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
OURS = frozenset(
    name.lower().encode()
    for name in (
        TRAFFIC_TOKEN_HEADER,
        ACCESS_TOKEN_HEADER,
        SANDBOX_ID_HEADER,
        SANDBOX_PORT_HEADER,
        API_KEY_HEADER,
    )
)
"""Meant for whoever serves the protocol; what runs in the sandbox must not learn them."""

log = logging.getLogger(__name__)

_FRAMING = (b"content-length", b"transfer-encoding")
_HEAD_END = re.compile(rb"\n\r?\n")
_MAX_HEAD_BYTES = 128 * 1024

RawHeaders = list[tuple[bytes, bytes]]
Judge = Callable[[int], Awaitable[Response | None]]
"""Given the status of an answer, another answer to give in its place, or None."""


class _Instead(Exception):
    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response


def forwarded(
    raw: Iterable[tuple[bytes, bytes]],
    *,
    drop: frozenset[bytes] = OURS,
    host: str | None = None,
) -> RawHeaders:
    """The headers of a request as they go on: without those of this hop, and with another Host if
    one is given."""
    headers = without(raw, HOP_BY_HOP | drop)
    if host is None:
        return headers
    return [(name, host.encode() if name == b"host" else value) for name, value in headers]


async def relay_http(
    stream: ByteStream,
    headers: RawHeaders,
    scope: Scope,
    receive: Receive,
    send: Send,
    *,
    target: bytes | None = None,
    answer: Callable[[RawHeaders], RawHeaders] = lambda headers: headers,
    judge: Judge | None = None,
) -> None:
    """Both directions at once, each at its reader's pace. `target` is the path and query to ask for
    if not the request's own; `answer` edits the headers of the answer, `judge` may replace all of it."""
    upstream = h11.Connection(h11.CLIENT)
    if target is None:
        target = request_target(scope)
    try:
        request = h11.Request(
            method=scope["method"], target=target, headers=_with_framing(headers, scope)
        )
        head = upstream.send(request)
    except h11.LocalProtocolError:
        await json_error(400, "The request cannot be forwarded as HTTP/1.1")(scope, receive, send)
        return
    started = False

    async def upload() -> None:
        await stream.write(head or b"")
        async for chunk in body_chunks(receive):
            await stream.write(upstream.send(h11.Data(data=chunk)) or b"")
        if rest := upstream.send(h11.EndOfMessage()):
            await stream.write(rest)

    async def download() -> None:
        nonlocal started
        async for event in _answer(upstream, stream):
            if isinstance(event, h11.Response):
                if judge is not None and (other := await judge(event.status_code)) is not None:
                    raise _Instead(other)
                started = True
                await send(
                    {
                        "type": "http.response.start",
                        "status": event.status_code,
                        "headers": answer(without(event.headers.raw_items(), HOP_BY_HOP)),
                    }
                )
            else:
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    try:
        await _both(upload(), download(), receive)
    except ClientDisconnect:
        return
    except _Instead as instead:
        await instead.response(scope, receive, send)
    except (h11.RemoteProtocolError, h11.LocalProtocolError, SandboxError) as error:
        if started:
            # No end is sent: the server cuts the connection, and the client sees that it is not whole.
            log.info("%s %s broke off: %s", scope["method"], scope["path"], error)
            return
        message = f"The server in the sandbox gave no valid HTTP answer: {error}"
        await json_error(502, message)(scope, receive, send)


def request_target(scope: Scope) -> bytes:
    target: bytes = scope.get("raw_path") or scope["path"].encode()
    return target + b"?" + scope["query_string"] if scope["query_string"] else target


async def _both(
    upload_work: Coroutine[Any, Any, None],
    download_work: Coroutine[Any, Any, None],
    receive: Receive,
) -> None:
    """Answers may come before the request is read; a client that leaves ends both."""
    upload = asyncio.ensure_future(upload_work)
    download = asyncio.ensure_future(download_work)
    leaving: asyncio.Future[None] | None = None
    try:
        await asyncio.wait({upload, download}, return_when=asyncio.FIRST_COMPLETED)
        if not download.done():
            upload.result()
            leaving = asyncio.ensure_future(_left(receive))
            await asyncio.wait({download, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not download.done():
                raise ClientDisconnect
        download.result()
    finally:
        pending = [task for task in (upload, download, leaving) if task is not None]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


async def _answer(
    upstream: h11.Connection, stream: ByteStream
) -> AsyncIterator[h11.Response | bytes]:
    """The final response and its body; informational ones are for us alone.

    h11 reads the head and chunked bodies. A body that is counted, or ends with the connection, needs no
    parser: its bytes pass as they came.
    """
    response, rest = await _head(upstream, stream)
    yield response
    if (event := upstream.next_event()) is not h11.NEED_DATA:
        if not isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            raise h11.RemoteProtocolError("the head is not followed by a body")
        return
    framing = {name: value for name, value in response.headers if name in _FRAMING}
    if b"transfer-encoding" in framing:
        async for data in _chunked(upstream, stream, rest):
            yield data
        return
    left = int(framing[b"content-length"]) if b"content-length" in framing else None
    while left is None or left > 0:
        data = rest or await stream.read()
        rest = b""
        if not data:
            if left:
                raise h11.RemoteProtocolError(f"the body ended {left} bytes early")
            return
        if left is not None:
            data = data[:left]
            left -= len(data)
        yield data


async def _head(upstream: h11.Connection, stream: ByteStream) -> tuple[h11.Response, bytes]:
    """And the bytes that came with it but belong to the body."""
    head = bytearray()
    while True:
        found = _HEAD_END.search(head)
        if found is None:
            data = await stream.read()
            if not data:
                raise h11.RemoteProtocolError("the connection was closed before an answer")
            head += data
            if len(head) > _MAX_HEAD_BYTES and _HEAD_END.search(head) is None:
                raise h11.RemoteProtocolError("the head is too long")
            continue
        end = found.end()
        upstream.receive_data(bytes(head[:end]))
        event = upstream.next_event()
        if isinstance(event, h11.Response):
            return event, bytes(head[end:])
        if not isinstance(event, h11.InformationalResponse):
            raise h11.RemoteProtocolError("this is no answer")
        del head[:end]


async def _chunked(
    upstream: h11.Connection, stream: ByteStream, rest: bytes
) -> AsyncIterator[bytes]:
    if rest:
        upstream.receive_data(rest)
    while True:
        event = upstream.next_event()
        if event is h11.NEED_DATA:
            upstream.receive_data(await stream.read())
        elif isinstance(event, h11.Data):
            yield bytes(event.data)
        else:
            return


def _with_framing(headers: RawHeaders, scope: Scope) -> RawHeaders:
    """`Connection: close`: one request a connection. A body without a length stays chunked."""
    framed = [*headers, (b"connection", b"close")]
    if any(name == b"transfer-encoding" for name, _ in scope["headers"]):
        framed = [item for item in framed if item[0] != b"content-length"]
        framed.append((b"transfer-encoding", b"chunked"))
    return framed


def without(headers: Iterable[tuple[bytes, bytes]], names: frozenset[bytes]) -> RawHeaders:
    """Lower-cased, without these and without those that `Connection` lists."""
    listed = {
        part.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for part in value.split(b",")
    }
    return [
        (name.lower(), value)
        for name, value in headers
        if name.lower() not in names and name.lower() not in listed
    ]
