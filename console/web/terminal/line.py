"""The line between a WebSocket and a terminal, with a bounded amount under way in either direction.

Binary messages are what was typed and what is shown. Text messages are JSON: from the page `{"ack": bytes}`,
`{"size": [cols, rows]}` and `{"kill": true}`; to it what `Line.tell` is given.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

from starlette.websockets import WebSocket

from sandboxes.client import Terminal
from sandboxes.errors import NotFound

__all__ = ["MOST_TYPED_BYTES", "MOST_UNSEEN_BYTES", "Line", "LineClosed"]

MOST_UNSEEN_BYTES = 512 * 1024
"""Sent, and not yet drawn by the page. The program waits while there is more."""
MOST_TYPED_BYTES = 1024 * 1024
"""Received, and not yet taken by the terminal. More is not taken from the page."""
_WRITE_BYTES = 32 * 1024
_LONGEST_WISH = 200
_MAX_SIZE = 1000


class LineClosed(Exception):
    """The page has gone."""


class Line:
    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._loop = asyncio.get_running_loop()
        self._typed: list[bytes] = []
        self._typed_bytes = 0
        self._something_typed = asyncio.Event()
        self._unseen_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._sending = asyncio.Lock()
        self.typed_at = self._loop.time()

    @property
    def idle_s(self) -> float:
        """Since something was typed."""
        return self._loop.time() - self.typed_at

    async def tell(self, what: str, **more: Any) -> None:
        """Raises LineClosed, as everything here that sends."""
        await self._send(text=json.dumps({"what": what, **more}))

    async def show(self, terminal: Terminal) -> None:
        """Returns when the shell has ended. Raises SandboxError."""
        async for data in terminal:
            await self._send(data=data)
            self._unseen_bytes += len(data)
            if self._unseen_bytes > MOST_UNSEEN_BYTES:
                self._room.clear()
                await self._room.wait()

    async def type(self, terminal: Terminal) -> None:
        """Never returns. Apart from `listen`, so that a program that reads nothing holds up neither the
        page's acknowledgements nor what the page is told."""
        while True:
            await self._something_typed.wait()
            while self._typed:
                data = b"".join(self._typed)
                self._typed.clear()
                for start in range(0, len(data), _WRITE_BYTES):
                    # The shell may just have ended; that is told by what it shows.
                    with suppress(NotFound):
                        await terminal.write(data[start : start + _WRITE_BYTES])
                self._typed_bytes -= len(data)
            self._something_typed.clear()

    async def listen(self, terminal: Terminal) -> None:
        """Never returns: raises LineClosed when the page goes."""
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                raise LineClosed
            if data := message.get("bytes"):
                await self._take(data)
            elif text := message.get("text"):
                await self._obey(terminal, text)

    async def _take(self, data: bytes) -> None:
        self.typed_at = self._loop.time()
        if self._typed_bytes + len(data) > MOST_TYPED_BYTES:
            await self.tell("too_much")
            return
        self._typed.append(data)
        self._typed_bytes += len(data)
        self._something_typed.set()

    async def _obey(self, terminal: Terminal, text: str) -> None:
        """A page of our own sends nothing else; what another client makes up is passed over."""
        if len(text) > _LONGEST_WISH:
            return
        try:
            wish = json.loads(text)
        except ValueError:
            return
        match wish:
            case {"ack": int(count)}:
                self._unseen_bytes = max(self._unseen_bytes - count, 0)
                if self._unseen_bytes <= MOST_UNSEEN_BYTES:
                    self._room.set()
            case {"size": [int(cols), int(rows)]}:
                with suppress(NotFound):
                    await terminal.resize(cols=sane(cols), rows=sane(rows))
            case {"kill": True}:
                await terminal.kill()

    async def _send(self, *, data: bytes | None = None, text: str | None = None) -> None:
        try:
            async with self._sending:
                await self._socket.send(
                    {"type": "websocket.send", "bytes": data}
                    if text is None
                    else {"type": "websocket.send", "text": text}
                )
        except (RuntimeError, OSError) as error:
            raise LineClosed from error


def sane(size: int) -> int:
    return min(max(size, 2), _MAX_SIZE)
