"""Connect RPC over plain ASGI: unary calls, server streams, and client streams with one answer.

Facts: a stream's status is always 200 once its content type is right; errors travel in its last
frame. The request body is read to its end before the answer ends, or the client would see a reset
connection instead of the last frame. A client that goes away ends its stream and nothing else.
Messages are JSON or protobuf, as the client's content type says, and may come compressed; handlers see
their JSON form.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from sandboxes.errors import SandboxError
from sandboxes.sandboxd.live import LiveSandbox
from sandboxes.wire import proto
from sandboxes.wire.connect import (
    PROTO_STREAM_CONTENT_TYPE,
    PROTO_UNARY_CONTENT_TYPE,
    STREAM_CONTENT_TYPE,
    UNARY_CONTENT_TYPE,
    Code,
    ConnectError,
    FrameDecoder,
    decode_json,
    encode_end,
    encode_frame,
    encode_json,
    gunzip,
)
from sandboxes.wire.encoding import decode_user_selector
from sandboxes.wire.server.asgi import body_chunks
from sandboxes.wire.server.problems import connect_error

__all__ = ["Call", "ClientStream", "ServerStream", "StreamBroken", "Unary", "serve"]


class StreamBroken(Exception):
    """Stop in mid-stream: the connection closes without a last frame, as it does where a sandbox is
    killed under its own server. SDKs then ask /health, whose 502 tells them the rest."""


DEFAULT_USER = "user"
_KEEPALIVE_S = 90.0
_MAX_REQUEST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Call:
    """One request to one sandbox. `user` is the account it selects, never proof of anything."""

    live: LiveSandbox
    headers: Headers

    @property
    def user(self) -> str:
        try:
            return decode_user_selector(self.headers.get("authorization")) or DEFAULT_USER
        except ValueError as error:
            raise ConnectError(Code.UNAUTHENTICATED, str(error)) from None

    @property
    def timeout_s(self) -> float | None:
        """Connect-Timeout-Ms; absent or zero means no limit."""
        raw = self.headers.get("connect-timeout-ms", "")
        if not raw:
            return None
        if not raw.isascii() or not raw.isdigit():
            raise ConnectError(Code.INVALID_ARGUMENT, "Connect-Timeout-Ms must be a whole number")
        return int(raw) / 1000 or None

    @property
    def keepalive_s(self) -> float:
        raw = self.headers.get("keepalive-ping-interval", "")
        return float(raw) if raw.isascii() and raw.isdigit() and int(raw) else _KEEPALIVE_S


@dataclass(frozen=True, slots=True)
class Unary:
    handle: Callable[[Call, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class ServerStream:
    """Yields messages."""

    handle: Callable[[Call, Mapping[str, Any]], AsyncGenerator[Mapping[str, Any], None]]


@dataclass(frozen=True, slots=True)
class ClientStream:
    """Is given the messages as they come."""

    handle: Callable[[Call, AsyncIterator[Mapping[str, Any]]], Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Codec:
    """How this client writes its messages. `decode` raises ConnectError."""

    content_type: str
    decode: Callable[[bytes], dict[str, Any]]
    encode: Callable[[Mapping[str, Any]], bytes]
    gzipped: bool
    """Answers are never compressed, which a client has to take."""

    def decoder(self) -> FrameDecoder:
        return FrameDecoder(self.decode, gzipped=self.gzipped)

    def frame(self, message: Mapping[str, Any]) -> bytes:
        return encode_frame(self.encode(message))

    def start(self) -> Message:
        """Of a stream."""
        return {
            "type": "http.response.start",
            "status": 200,
            "headers": [
                (b"content-type", self.content_type.encode()),
                # nginx would hold small frames back, and so starve the stream.
                (b"x-accel-buffering", b"no"),
                (b"cache-control", b"no-store"),
            ],
        }


def _codec(path: str, headers: Headers, *, unary: bool) -> Codec | None:
    """None for a form that is not spoken here."""
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    encoding = headers.get("content-encoding" if unary else "connect-content-encoding", "identity")
    if encoding not in ("identity", "gzip"):
        return None
    gzipped = encoding == "gzip"
    if content_type == (UNARY_CONTENT_TYPE if unary else STREAM_CONTENT_TYPE):
        return Codec(content_type, decode_json, encode_json, gzipped)
    if content_type != (PROTO_UNARY_CONTENT_TYPE if unary else PROTO_STREAM_CONTENT_TYPE):
        return None
    request, reply = proto.METHODS[path]

    def decode(body: bytes) -> dict[str, Any]:
        try:
            return proto.decode(request, body)
        except ValueError as error:
            raise ConnectError(
                Code.INVALID_ARGUMENT, f"a message is not valid protobuf: {error}"
            ) from None

    return Codec(content_type, decode, lambda message: proto.encode(reply, message), gzipped)


async def serve(
    method: Unary | ServerStream | ClientStream,
    live: LiveSandbox,
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    call = Call(live, Headers(scope=scope))
    unary = isinstance(method, Unary)
    codec = _codec(scope["path"], call.headers, unary=unary)
    if codec is None:
        spoken = (
            (UNARY_CONTENT_TYPE, PROTO_UNARY_CONTENT_TYPE)
            if unary
            else (STREAM_CONTENT_TYPE, PROTO_STREAM_CONTENT_TYPE)
        )
        headers = {"Accept-Post": ", ".join(spoken), "Accept-Encoding": "gzip"}
        await Response(status_code=415, headers=headers)(scope, receive, send)
    elif isinstance(method, Unary):
        response = await _unary(method, call, codec, receive)
        await response(scope, receive, send)
    elif isinstance(method, ServerStream):
        await _server_stream(method, call, codec, receive, send)
    else:
        await _client_stream(method, call, codec, receive, send)


async def _unary(method: Unary, call: Call, codec: Codec, receive: Receive) -> Response:
    try:
        body = await _read_all(receive)
        if codec.gzipped and body:
            body = gunzip(body)
        message = codec.decode(body) if body else {}
        reply = codec.encode(await method.handle(call, message))
        return Response(reply, media_type=codec.content_type)
    except ConnectError as refused:
        error = refused
    except SandboxError as failed:
        error = connect_error(failed)
    return JSONResponse(error.to_json(), status_code=error.code.http_status)


async def _server_stream(
    method: ServerStream, call: Call, codec: Codec, receive: Receive, send: Send
) -> None:
    try:
        message = await _read_single_frame(codec, receive)
    except ConnectError as refused:
        await send(codec.start())
        await send(_chunk(encode_end(refused), last=True))
        return
    answering = asyncio.ensure_future(_answer(method, call, codec, message, send))
    leaving = asyncio.ensure_future(_client_left(receive))
    try:
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        answering.cancel()
        leaving.cancel()
        results = await asyncio.gather(answering, leaving, return_exceptions=True)
    if isinstance(results[0], Exception):
        raise results[0]


async def _answer(
    method: ServerStream, call: Call, codec: Codec, message: Mapping[str, Any], send: Send
) -> None:
    await send(codec.start())
    try:
        async with aclosing(method.handle(call, message)) as replies:
            async for reply in replies:
                await send(_chunk(codec.frame(reply)))
        outcome = encode_end()
    except StreamBroken:
        return
    except ConnectError as refused:
        outcome = encode_end(refused)
    except SandboxError as failed:
        outcome = encode_end(connect_error(failed))
    await send(_chunk(outcome, last=True))


async def _client_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


async def _client_stream(
    method: ClientStream, call: Call, codec: Codec, receive: Receive, send: Send
) -> None:
    frames = _frames(codec, receive)
    try:
        reply = await method.handle(call, frames)
        outcome = codec.frame(reply) + encode_end()
    except ConnectError as refused:
        outcome = encode_end(refused)
    except SandboxError as failed:
        outcome = encode_end(connect_error(failed))
    with suppress(ConnectError):
        async for _ in frames:
            continue
    await send(codec.start())
    await send(_chunk(outcome, last=True))


async def _frames(codec: Codec, receive: Receive) -> AsyncIterator[Mapping[str, Any]]:
    decoder = codec.decoder()
    async for data in body_chunks(receive):
        for frame in decoder.feed(data):
            if not frame.end:
                yield frame.message
    if decoder.mid_frame:
        raise ConnectError(Code.INVALID_ARGUMENT, "the request ends inside a frame")


async def _read_single_frame(codec: Codec, receive: Receive) -> Mapping[str, Any]:
    body = await _read_all(receive)
    frames = [frame for frame in codec.decoder().feed(body) if not frame.end]
    if len(frames) != 1:
        raise ConnectError(
            Code.INVALID_ARGUMENT, f"expected one message in the request, got {len(frames)}"
        )
    return frames[0].message


async def _read_all(receive: Receive) -> bytes:
    """To the very end, even past the limit: see the module's docstring."""
    body = bytearray()
    size_bytes = 0
    async for data in body_chunks(receive):
        size_bytes += len(data)
        if size_bytes <= _MAX_REQUEST_BYTES:
            body += data
    if size_bytes > _MAX_REQUEST_BYTES:
        raise ConnectError(Code.RESOURCE_EXHAUSTED, f"a request of {size_bytes} bytes is too large")
    return bytes(body)


def _chunk(data: bytes, *, last: bool = False) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": not last}
