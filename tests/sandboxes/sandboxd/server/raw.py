"""The protocol by hand: httpx over the unix socket, frames one by one. Independent of our client."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from sandboxes.wire.connect import FrameDecoder

STREAM = "application/connect+json"


def frame(message: dict[str, Any], flags: int = 0) -> bytes:
    body = json.dumps(message).encode()
    return struct.pack(">BI", flags, len(body)) + body


async def until(condition: Callable[[], Awaitable[Any]], timeout_s: float = 8.0) -> Any:
    """What `condition` returns once that is true. For what only polling can see."""
    async with asyncio.timeout(timeout_s):
        while not (found := await condition()):  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.01)
    return found


@dataclass
class Finished:
    """A process's whole stream. `error` is the last frame's, `exit_code` None without an end."""

    pid: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    end: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    events: list[str] = field(default_factory=list)

    def take(self, message: dict[str, Any]) -> None:
        event = message["event"]
        kind = next(iter(event))
        self.events.append(kind)
        if kind == "start":
            self.pid = event["start"]["pid"]
        elif kind == "data":
            for stream, data in event["data"].items():
                name = "stdout" if stream == "pty" else stream
                setattr(self, name, getattr(self, name) + base64.b64decode(data))
        elif kind == "end":
            self.end = event["end"]


@dataclass
class RawSandbox:
    http: httpx.AsyncClient
    reply: dict[str, Any]

    @property
    def id(self) -> str:
        return str(self.reply["sandboxID"])

    def headers(self, port: int = 49983, **extra: str) -> dict[str, str]:
        headers = {"E2b-Sandbox-Id": self.id, "E2b-Sandbox-Port": str(port), **extra}
        if token := self.reply.get("envdAccessToken"):
            headers["X-Access-Token"] = token
        return headers

    async def call(self, method: str, message: dict[str, Any], **headers: str) -> httpx.Response:
        return await self.http.post(f"/{method}", json=message, headers=self.headers(**headers))

    @asynccontextmanager
    async def stream(
        self, method: str, message: dict[str, Any], **headers: str
    ) -> AsyncIterator[AsyncIterator[tuple[bool, dict[str, Any]]]]:
        """(end, message) of each frame."""
        sent = {**self.headers(), "Content-Type": STREAM, **headers}

        async with self.http.stream(
            "POST", f"/{method}", headers=sent, content=frame(message)
        ) as response:
            assert response.status_code == 200, await response.aread()
            assert response.headers["Content-Type"] == STREAM
            assert response.headers["X-Accel-Buffering"] == "no"

            async def frames() -> AsyncIterator[tuple[bool, dict[str, Any]]]:
                decoder = FrameDecoder()
                async for data in response.aiter_raw():
                    for item in decoder.feed(data):
                        yield item.end, item.message

            yield frames()

    async def finish(self, method: str, message: dict[str, Any], **headers: str) -> Finished:
        result = Finished()
        async with self.stream(method, message, **headers) as frames:
            async for end, body in frames:
                if end:
                    result.error = body.get("error")
                else:
                    result.take(body)
        return result

    async def run(self, *argv: str, **options: Any) -> Finished:
        headers = options.pop("headers", {})
        process = {"cmd": argv[0], "args": list(argv[1:]), **options.pop("process", {})}
        message = {"process": process, "stdin": False, **options}
        return await self.finish("process.Process/Start", message, **headers)

    async def sh(self, script: str, **options: Any) -> Finished:
        return await self.run("/bin/bash", "-c", script, **options)
