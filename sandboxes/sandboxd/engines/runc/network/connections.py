"""A byte stream to a port inside a sandbox."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Self

from sandboxes.errors import Unavailable
from sandboxes.sandboxd.engines.base import Connection
from sandboxes.sandboxd.engines.runc.network.namespaces import in_namespace

__all__ = ["SocketConnection", "connect_inside"]

_CONNECT_TIMEOUT_S = 5.0


class SocketConnection(Connection):
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, connected: socket.socket) -> Self:
        return cls(*await asyncio.open_connection(sock=connected))

    async def read(self, max_bytes: int = 65536) -> bytes:
        try:
            return await self._reader.read(max_bytes)
        except OSError as error:
            raise Unavailable("The server in the sandbox broke the connection off") from error

    async def write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise Unavailable("The server in the sandbox broke the connection off") from error

    async def aclose(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            return  # it was broken already


async def connect_inside(namespace: Path, addresses: list[str], port: int) -> SocketConnection:
    """To the first of `addresses` that answers. The sockets are made in the namespace and stay in
    it; connecting them needs no thread."""

    candidates: list[socket.socket] = []

    def make_sockets() -> None:
        for _ in addresses:
            candidate = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            candidates.append(candidate)
            candidate.setblocking(False)

    loop = asyncio.get_running_loop()
    connected: socket.socket | None = None
    try:
        await in_namespace(namespace, make_sockets)
        for candidate, address in zip(candidates, addresses, strict=True):
            try:
                async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                    await loop.sock_connect(candidate, (address, port))
            except (OSError, TimeoutError):
                continue
            connected = candidate
            return await SocketConnection.over(candidate)
    finally:
        for candidate in candidates:
            if candidate is not connected:
                candidate.close()
    raise Unavailable(f"Nothing listens on port {port} of the sandbox; start a server there first")
