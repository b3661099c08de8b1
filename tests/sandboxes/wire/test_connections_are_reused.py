"""One connection serves call after call, streams that ended included."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandboxes.backends.cube.client import CubeClient
from sandboxes.backends.cube.control import Features
from sandboxes.backends.cube.settings import Settings as CubeSettings
from sandboxes.backends.cube.settings import wire_settings
from sandboxes.backends.e2b import E2B_CAPABILITIES, E2BClient
from sandboxes.types import ExecRequest
from sandboxes.wire.envd import Addressing
from sandboxes.wire.transport import Dial
from tests.sandboxes.wire import servers
from tests.sandboxes.wire.servers import BOX, END, START, event

_RUN = START + event(end={"exited": True, "status": "exit status 0"}) + END
_DETAIL = b'{"sandboxID":"abc123","templateID":"t","state":"running"}'


class CountingServer:
    """Speaks just enough HTTP/1.1 with keep-alive to count connections and requests."""

    def __init__(self) -> None:
        self.connections = 0
        self.requests = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.requests += 1
                lines = head.lower().split(b"\r\n")
                length = next((int(x[15:]) for x in lines if x.startswith(b"content-length:")), 0)
                await reader.readexactly(length)
                streams = b"/process.process/start" in lines[0]
                body = _RUN if streams else _DETAIL
                kind = b"application/connect+json" if streams else b"application/json"
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n"
                    b"%x\r\n%s\r\n0\r\n\r\n" % (kind, len(body), body)
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def counted(tmp_path: Path) -> AsyncIterator[tuple[CountingServer, E2BClient]]:
    path, counting = str(tmp_path / "s"), CountingServer()
    server = await asyncio.start_unix_server(counting.serve, path)
    settings = servers.settings(
        api_url="http://sandboxd",
        addressing=Addressing(shared_url="http://sandboxd", socket_path=path),
        control_dial=Dial(socket_path=path),
        data_dial=Dial(socket_path=path),
    )
    async with E2BClient(settings, E2B_CAPABILITIES) as client:
        yield counting, client
    server.close()
    await server.wait_closed()


async def test_calls_in_a_row(counted: tuple[CountingServer, E2BClient]) -> None:
    server, client = counted
    for _ in range(10):
        await client.get("abc123")
    for _ in range(10):
        assert (await client.run(BOX, ExecRequest(argv=("true",)))).ok
    assert server.requests == 20
    assert server.connections == 2, "one for each plane"


async def test_calls_at_once_need_no_turns(counted: tuple[CountingServer, E2BClient]) -> None:
    server, client = counted
    await asyncio.gather(*(client.get("abc123") for _ in range(20)))
    opened = server.connections
    await asyncio.gather(*(client.get("abc123") for _ in range(20)))
    assert server.requests == 40
    assert server.connections <= opened + 1


async def test_a_pinned_proxy_is_reused_over_tcp() -> None:
    counting = CountingServer()
    server = await asyncio.start_server(counting.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    settings = CubeSettings(api_url=url, proxy_url=url, allow_private=True)
    features = Features(network_update=True, volumes=True, v2_create=False)
    async with CubeClient(wire_settings(settings), features=features) as client:
        for _ in range(10):
            await client.get("abc123")
            assert (await client.run(BOX, ExecRequest(argv=("true",)))).ok
    assert counting.requests == 20
    assert counting.connections == 2, "one for each plane"
    server.close()
    await server.wait_closed()
