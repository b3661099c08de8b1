"""A name that points elsewhere a moment later (DNS rebinding) leads nowhere; what was judged is what is
dialled, with Host and the TLS name kept. Real sockets, a resolver that lies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from sandboxes import registry
from sandboxes.errors import InvalidRequest, SandboxError, Unavailable
from sandboxes.urlguard import UrlGuard, UrlRefused
from sandboxes.wire.failures import Service
from sandboxes.wire.transport import CONTROL_HEADERS, Dial, Plane

SERVICE = Service(provider="e2b", place="the server at https://api.example", mend="check it")


@dataclass
class Listener:
    """A server on the loopback: the inside that nobody outside may reach through us."""

    port: int = 0
    requests: list[str] = field(default_factory=list)
    connections: int = 0
    answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests.append(head.decode())
                writer.write(self.answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
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


class Resolver:
    """Answers differently each time it is asked; the last answer stays."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked += 1
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


@asynccontextmanager
async def plane(guard: UrlGuard, url: str, *, address: str | None = None) -> AsyncIterator[Plane]:
    dial = Dial(guard=guard, address=address)
    made = Plane(
        SERVICE,
        transport=dial.transport(tls=False),
        allowed_headers=CONTROL_HEADERS,
        base_url=url,
    )
    async with made:
        yield made


async def test_a_rebound_name_is_refused_and_not_dialled(inside: Listener) -> None:
    resolver = Resolver(["203.0.113.9"], ["127.0.0.1"])
    guard = UrlGuard(resolve=resolver)
    url = f"http://api.example:{inside.port}"

    await guard.check(url)  # as it was saved
    async with plane(guard, url) as made:
        with pytest.raises(UrlRefused) as caught:
            await made.request("get", "GET", "/x", timeout_s=5)

    assert resolver.asked == 2
    assert inside.connections == 0
    assert (caught.value.provider, caught.value.op) == ("e2b", "get")
    assert not caught.value.gone


async def test_a_stream_is_guarded_too(inside: Listener) -> None:
    guard = UrlGuard(resolve=Resolver(["169.254.169.254"]), allow_private=True)
    async with plane(guard, f"http://api.example:{inside.port}") as made:
        with pytest.raises(UrlRefused):
            async with made.stream("exec", "POST", "/x", answer_within_s=5):
                pass
    assert inside.connections == 0


async def test_the_judged_address_is_dialled_and_the_host_kept(inside: Listener) -> None:
    resolver = Resolver(["127.0.0.1"])
    guard = UrlGuard(resolve=resolver, allow_private=True)
    async with plane(guard, f"http://api.example:{inside.port}") as made:
        for _ in range(3):
            assert (await made.request("get", "GET", "/x", timeout_s=5)).ok
    assert f"Host: api.example:{inside.port}" in inside.requests[0]
    assert (inside.connections, resolver.asked) == (1, 1), "one look-up and dial for all of them"


async def test_a_pinned_proxy_is_guarded_by_its_own_address(inside: Listener) -> None:
    address = f"127.0.0.1:{inside.port}"
    async with plane(UrlGuard(), "http://49983-abc.cube.app", address=address) as made:
        with pytest.raises(UrlRefused):
            await made.request("get", "GET", "/x", timeout_s=5)
    assert inside.connections == 0
    guard = UrlGuard(allow_private=True)
    async with plane(guard, "http://49983-abc.cube.app", address=address) as made:
        assert (await made.request("get", "GET", "/x", timeout_s=5)).ok
    assert "Host: 49983-abc.cube.app\r\n" in inside.requests[0]


async def test_a_second_address_is_tried(inside: Listener) -> None:
    guard = UrlGuard(resolve=Resolver(["127.0.0.2", "127.0.0.1"]), allow_private=True)
    async with plane(guard, f"http://api.example:{inside.port}") as made:
        assert (await made.request("get", "GET", "/x", timeout_s=5)).ok


async def test_a_redirect_leads_nowhere(inside: Listener) -> None:
    inside.answer = (
        b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"
    )
    guard = UrlGuard(resolve=Resolver(["127.0.0.1"]), allow_private=True)
    async with plane(guard, f"http://api.example:{inside.port}") as made:
        answer = await made.request("get", "GET", "/x", timeout_s=5)
    assert answer.status == 302
    assert len(inside.requests) == 1


async def test_proxies_of_the_environment_are_ignored(
    inside: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    guard = UrlGuard(resolve=Resolver(["127.0.0.1"]), allow_private=True)
    async with plane(guard, f"http://api.example:{inside.port}") as made:
        assert (await made.request("get", "GET", "/x", timeout_s=5)).ok


async def test_names_without_an_address_are_unavailable() -> None:
    async def nothing(host: str, port: int) -> Sequence[str]:
        raise OSError("no such name")

    async with plane(UrlGuard(resolve=nothing), "http://api.example") as made:
        with pytest.raises(Unavailable):
            await made.request("get", "GET", "/x", timeout_s=5)


async def test_idle_connections_can_be_dropped(inside: Listener) -> None:
    guard = UrlGuard(resolve=Resolver(["127.0.0.1"]), allow_private=True)
    async with plane(guard, f"http://api.example:{inside.port}") as made:
        await made.request("get", "GET", "/x", timeout_s=5)
        await made.drop_idle()
        await made.request("get", "GET", "/x", timeout_s=5)
    assert inside.connections == 2


async def test_the_e2b_backend_is_guarded(inside: Listener) -> None:
    url = f"http://127.0.0.1:{inside.port}"
    with pytest.raises(InvalidRequest, match="private address"):
        await registry.open_client("e2b", {"api_key": "k", "api_url": url})
    with pytest.raises(SandboxError) as caught:
        await registry.open_client(
            "e2b", {"api_key": "k", "api_url": f"http://localhost.example.:{inside.port}"}
        )
    assert not caught.value.gone
    assert inside.connections == 0


async def test_the_docker_backend_is_guarded(inside: Listener) -> None:
    url = f"http://127.0.0.1:{inside.port}"
    with pytest.raises(UrlRefused, match="allow private"):
        await registry.open_client("docker", {"url": url})
    assert inside.connections == 0
    with pytest.raises(SandboxError) as caught:
        await registry.open_client("docker", {"url": url, "allow_private": True})
    assert not isinstance(caught.value, UrlRefused)
    assert inside.connections > 0
