"""Every other port of a sandbox: a reverse proxy for HTTP and WebSocket, behind the inbound switch.

With inbound open anyone who can reach sandboxd reaches the port; closed, the traffic token opens it.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Iterable

import h11
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from sandboxes.errors import SandboxError, Unavailable
from sandboxes.sandboxd.engines.base import Connection, Engine
from sandboxes.sandboxd.live import LiveSandbox
from sandboxes.sandboxd.routes.asgi import body_chunks
from sandboxes.sandboxd.routes.problems import error_response, json_error, port_closed_502
from sandboxes.sandboxd.routes.sockets import relay_websocket
from sandboxes.wire.messages import ACCESS_TOKEN_HEADER, TRAFFIC_TOKEN_HEADER

__all__ = ["PortProxy"]

_HOP_BY_HOP = frozenset(
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
_OURS = frozenset(
    {
        TRAFFIC_TOKEN_HEADER.lower().encode(),
        ACCESS_TOKEN_HEADER.lower().encode(),
        b"e2b-sandbox-id",
        b"e2b-sandbox-port",
        b"x-api-key",
    }
)
"""Meant for sandboxd; what runs in the sandbox must not learn them."""

RawHeaders = list[tuple[bytes, bytes]]


class PortProxy:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def refusal(self, live: LiveSandbox, scope: Scope) -> Response | None:
        """403 without the traffic token while inbound is closed; None lets the request in."""
        if live.record.inbound:
            return None
        expected = live.record.traffic_token
        given = Headers(scope=scope).get(TRAFFIC_TOKEN_HEADER)
        if given and expected and hmac.compare_digest(given.encode(), expected.encode()):
            return None
        token = f"Token header '{TRAFFIC_TOKEN_HEADER}' is missing"
        if given is not None:
            token = f"Provided token in '{TRAFFIC_TOKEN_HEADER}' header is invalid"
        message = f"Sandbox is secured with traffic access token. {token}"
        body = {"sandboxId": live.id, "message": message, "code": 403}
        return JSONResponse(body, status_code=403)

    async def handle(
        self, live: LiveSandbox, port: int, scope: Scope, receive: Receive, send: Send
    ) -> None:
        try:
            connection = await self._engine.dial(live.id, port)
        except Unavailable:
            await _answer(port_closed_502(live.id, port), scope, receive, send)
            return
        except SandboxError as error:
            await _answer(error_response(error), scope, receive, send)
            return
        try:
            headers = _forwarded(scope["headers"], live.record.mask_request_host, port)
            if scope["type"] == "websocket":
                await relay_websocket(connection, headers, scope, receive, send)
            else:
                await _relay_http(connection, headers, scope, receive, send)
        finally:
            await connection.aclose()


async def _relay_http(
    connection: Connection, headers: RawHeaders, scope: Scope, receive: Receive, send: Send
) -> None:
    upstream = h11.Connection(h11.CLIENT)
    target = scope.get("raw_path") or scope["path"].encode()
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
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
        await connection.write(head or b"")
        async for chunk in body_chunks(receive):
            await connection.write(upstream.send(h11.Data(data=chunk)) or b"")
        await connection.write(upstream.send(h11.EndOfMessage()) or b"")

    async def download() -> None:
        nonlocal started
        async for event in _events(upstream, connection):
            if isinstance(event, h11.Response):
                started = True
                await send(
                    {
                        "type": "http.response.start",
                        "status": event.status_code,
                        "headers": _without(event.headers.raw_items(), _HOP_BY_HOP),
                    }
                )
            elif isinstance(event, h11.Data):
                body = bytes(event.data)
                await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    try:
        await _both(upload(), download(), receive)
    except ClientDisconnect:
        return
    except (h11.RemoteProtocolError, h11.LocalProtocolError, SandboxError) as error:
        if started:
            raise
        message = f"The server in the sandbox gave no valid HTTP answer: {error}"
        await json_error(502, message)(scope, receive, send)


async def _both(upload_work, download_work, receive: Receive) -> None:  # type: ignore[no-untyped-def]
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


async def _events(upstream: h11.Connection, connection: Connection) -> AsyncIterator[h11.Event]:
    """Of the final response; informational ones are for us alone."""
    while True:
        event = upstream.next_event()
        if event is h11.NEED_DATA:
            upstream.receive_data(await connection.read())
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed) or event is h11.PAUSED:
            return
        elif isinstance(event, h11.Response | h11.Data):
            yield event


def _forwarded(raw: Iterable[tuple[bytes, bytes]], mask: str | None, port: int) -> RawHeaders:
    headers = _without(raw, _HOP_BY_HOP | _OURS)
    if mask is None:
        return headers
    host = mask.replace("${PORT}", str(port)).encode()
    return [(name, host if name == b"host" else value) for name, value in headers]


def _with_framing(headers: RawHeaders, scope: Scope) -> RawHeaders:
    """`Connection: close`: one request a connection. A body without a length stays chunked."""
    framed = [*headers, (b"connection", b"close")]
    if any(name == b"transfer-encoding" for name, _ in scope["headers"]):
        framed = [item for item in framed if item[0] != b"content-length"]
        framed.append((b"transfer-encoding", b"chunked"))
    return framed


def _without(headers: Iterable[tuple[bytes, bytes]], names: frozenset[bytes]) -> RawHeaders:
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


async def _answer(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get(
        "extensions", {}
    ):
        await receive()
        await send({"type": "websocket.close", "code": 1011})
        return
    await response(scope, receive, send)
