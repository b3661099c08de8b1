"""Scripted servers: what a test says is what the client hears."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import httpx

from sandboxes.backends.e2b import E2B_CAPABILITIES, E2BClient
from sandboxes.types import Sandbox
from sandboxes.wire.client import WireSettings
from sandboxes.wire.connect import STREAM_CONTENT_TYPE, ConnectError, encode_end, encode_message
from sandboxes.wire.envd import Addressing
from sandboxes.wire.failures import Service

BOX = Sandbox(id="abc123", template_id="base", access_token="data-token", domain=None)
API_KEY = "e2b_" + "0" * 40

Handler = Callable[[httpx.Request], httpx.Response]


def settings(**changes: Any) -> WireSettings:
    values: dict[str, Any] = {
        "service": Service(
            provider="e2b", place="the server at https://api.example.test", mend="check the network"
        ),
        "api_url": "https://api.example.test",
        "api_key": API_KEY,
        "addressing": Addressing(shared_url="https://data.example.test"),
    }
    return WireSettings(**{**values, **changes})


class Scripted(httpx.MockTransport):
    """Its answers have yet to be read, as those of a real server, and may be given again."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await super().handle_async_request(request)
        if not answer.is_stream_consumed:
            return answer
        body = Pieces([answer.content])
        return httpx.Response(answer.status_code, headers=answer.headers, stream=body)


def client(handler: Handler, **changes: Any) -> E2BClient:
    return E2BClient(settings(**changes), E2B_CAPABILITIES, transport=Scripted(handler))


def refusal(status: int, message: str, code: int | str | None = None) -> httpx.Response:
    return httpx.Response(
        status, json={"code": status if code is None else code, "message": message}
    )


def not_found_502() -> httpx.Response:
    return refusal(502, "The sandbox was not found")


@dataclass(frozen=True)
class Slow:
    """A pause in a body."""

    seconds: float


class Pieces(httpx.AsyncByteStream):
    """A body in the pieces given; an exception among them breaks the connection there."""

    def __init__(self, pieces: Iterable[bytes | Exception | Slow]) -> None:
        self._pieces = list(pieces)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            if isinstance(piece, Slow):
                await asyncio.sleep(piece.seconds)
            else:
                yield piece


def stream(*pieces: bytes | Exception | Slow) -> httpx.Response:
    return httpx.Response(200, headers={"content-type": STREAM_CONTENT_TYPE}, stream=Pieces(pieces))


def event(**body: Any) -> bytes:
    return encode_message({"event": body})


START = event(start={"pid": 7})
END = encode_end()


def end_with(error: ConnectError) -> bytes:
    return encode_end(error)


def body_of(request: httpx.Request) -> Any:
    return json.loads(request.content)
