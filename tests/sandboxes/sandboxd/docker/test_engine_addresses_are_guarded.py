"""Where an engine may be: never link-local, in one's own network if that is allowed, and nowhere that a name or
a redirect leads to a moment later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import aiohttp
import pytest

from sandboxes.errors import SandboxError
from sandboxes.sandboxd.engines.docker import api as engine_api
from sandboxes.sandboxd.engines.docker.api import Api, DockerHost
from sandboxes.sandboxd.engines.docker.dialing import GuardedConnector
from sandboxes.urlguard import UrlGuard, UrlRefused


async def dial(host: DockerHost) -> SandboxError:
    with pytest.raises(SandboxError) as caught:
        await _ask(host)
    return caught.value


async def _ask(host: DockerHost) -> None:
    api = Api(host)
    try:
        await api.info()
    finally:
        await api.aclose()


@pytest.fixture
def no_tls(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose certificates are never needed: nothing may be dialled."""
    monkeypatch.setattr(engine_api, "_tls", lambda folder: True)
    return Path("/nowhere")


@pytest.mark.parametrize("allow_private", [False, True])
@pytest.mark.parametrize(
    "address",
    ["169.254.169.254", "[fe80::1]", "0.0.0.0", "[::ffff:a9fe:a9fe]"],  # noqa: S104
)
async def test_link_local_and_the_like_are_never_dialled(
    no_tls: Path, address: str, allow_private: bool
) -> None:
    guard = UrlGuard(allow_private=allow_private)
    error = await dial(DockerHost(url=f"tcp://{address}:2376", tls_dir=no_tls, guard=guard))
    assert isinstance(error, UrlRefused)
    assert "never called" in error.message


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.7", "localhost", "[::1]"])
async def test_private_ones_need_to_be_allowed(no_tls: Path, address: str) -> None:
    error = await dial(DockerHost(url=f"tcp://{address}:1", tls_dir=no_tls))
    assert isinstance(error, UrlRefused)
    assert "--docker-allow-private" in error.message


def resolver(*answers: Sequence[str]) -> UrlGuard:
    """Answers differently each time; the last answer stays. Private addresses are allowed."""
    left = list(answers)

    async def resolve(host: str, port: int) -> Sequence[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return UrlGuard(allow_private=True, resolve=resolve)


async def test_a_name_is_judged_when_it_is_dialled(no_tls: Path) -> None:
    for guard in (resolver(["169.254.169.254"]), resolver(["10.0.0.7", "169.254.1.1"])):
        error = await dial(DockerHost(url="tcp://engine.example:2376", tls_dir=no_tls, guard=guard))
        assert isinstance(error, UrlRefused)
        assert "engine.example points to 169.254" in error.message


class Listener:
    def __init__(self) -> None:
        self.port = 0
        self.heads: list[str] = []
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            writer.write(self.answer)
            await writer.drain()
        finally:
            writer.close()


@pytest.fixture
async def inside() -> AsyncIterator[Listener]:
    listener = Listener()
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0)
    listener.port = server.sockets[0].getsockname()[1]
    yield listener
    server.close()
    await server.wait_closed()


async def test_what_was_judged_is_what_is_dialled_also_after_a_redirect(inside: Listener) -> None:
    guard = resolver(["127.0.0.1"])
    async with aiohttp.ClientSession(connector=GuardedConnector(guard)) as session:
        url = f"http://engine.example:{inside.port}/"
        async with session.get(url) as answer:
            assert await answer.text() == "ok"
        assert f"Host: engine.example:{inside.port}" in inside.heads[0]
        inside.answer = (
            b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest\r\n"
            b"Content-Length: 0\r\nConnection: close\r\n\r\n"
        )
        with pytest.raises(UrlRefused, match="never called"):
            await session.get(url)


async def test_a_name_without_an_address_is_unavailable(no_tls: Path) -> None:
    async def nowhere(host: str, port: int) -> Sequence[str]:
        raise OSError("no such name")

    guard = UrlGuard(resolve=nowhere)
    error = await dial(DockerHost(url="tcp://engine.example:2376", tls_dir=no_tls, guard=guard))
    assert error.kind == "unavailable"
