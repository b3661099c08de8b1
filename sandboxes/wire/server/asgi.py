"""Request bodies below Starlette, where a stream must not be buffered or its errors hidden."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

__all__ = ["body_chunks", "drain", "refuse"]


async def body_chunks(receive: Receive) -> AsyncIterator[bytes]:
    """Raises ClientDisconnect if the client leaves before the end."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        if body := message.get("body"):
            yield body
        if not message.get("more_body", False):
            return


async def drain(chunks: AsyncIterator[bytes]) -> None:
    """Read on to the end: closing with data unread resets the connection, and the client then
    never sees the answer."""
    async for _ in chunks:
        continue


async def refuse(
    response: Response, scope: Scope, receive: Receive, send: Send, *, code: int = 1008
) -> None:
    """A refused WebSocket gets its answer before the handshake, as the extension for it allows."""
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get(
        "extensions", {}
    ):
        await receive()
        await send({"type": "websocket.close", "code": code})
        return
    await response(scope, receive, send)
