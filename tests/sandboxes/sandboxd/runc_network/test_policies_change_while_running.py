"""`apply`: every policy can follow every other on a sandbox that keeps running."""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from contextlib import suppress

import pytest

from sandboxes.errors import NotFound, Unavailable
from sandboxes.sandboxd.engines.runc.network.namespaces import in_namespace


async def test_every_kind_follows_every_other(network, internet, policy, reach):
    internet.names = {"www.example.com": [internet.server]}
    kinds = {
        "off": policy(outbound=False),
        "on": policy(outbound=True),
        "addresses": policy(outbound=False, allow=(internet.other,)),
        "names": policy(outbound=False, allow=("www.example.com",)),
    }
    namespace = await network.create("s", kinds["off"])

    async def check(kind: str) -> None:
        server, other = (
            await reach(namespace, internet.server),
            await reach(namespace, internet.other),
        )
        assert server.startswith("from") is (kind == "on"), kind
        assert other.startswith("from") is (kind in {"on", "addresses"}), kind
        assert bool(network.proxy_env("s")) is (kind == "names"), kind

    for before, after in itertools.permutations(kinds, 2):
        await network.apply("s", kinds[before])
        await network.apply("s", kinds[after])
        await check(after)
        await network.apply("s", kinds[after])
        await check(after)


async def test_a_connection_that_is_no_longer_allowed_ends(network, internet, policy):
    namespace = await network.create("s", policy(outbound=True))

    def connect() -> socket.socket:
        return socket.create_connection((internet.server, 8080), 5)

    client = await in_namespace(namespace, connect)
    reader, writer = await asyncio.open_connection(sock=client)
    assert (await reader.readline()).startswith(b"from")
    await network.apply("s", policy(outbound=True, deny=(internet.network,)))
    writer.write(b"still there?")
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(reader.read(100), 5)
    writer.close()


async def test_a_tunnel_that_is_no_longer_allowed_ends_and_others_go_on(network, internet, policy):
    internet.names = {"a.example.com": [internet.server], "b.example.com": [internet.server]}
    names = ("a.example.com", "b.example.com")
    namespace = await network.create("s", policy(outbound=False, allow=names))

    async def tunnel(host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        client = await in_namespace(
            namespace, lambda: socket.create_connection(("127.0.0.1", 3128), 5)
        )
        reader, writer = await asyncio.open_connection(sock=client)
        writer.write(f"CONNECT {host}:8080 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert b"200" in await reader.readuntil(b"\r\n\r\n")
        await reader.readline()
        return reader, writer

    a, b = await tunnel("a.example.com"), await tunnel("b.example.com")
    await network.apply("s", policy(outbound=False, allow=("b.example.com",)))
    async with asyncio.timeout(5):
        with suppress(ConnectionError):
            assert await a[0].read(10) == b""
        b[1].write(b"ping\n")
        assert await b[0].readline() == b"ping\n"
    for _, writer in (a, b):
        writer.close()


async def test_a_program_that_knows_the_proxy_still_gets_out_when_all_is_opened(
    network, internet, policy
):
    internet.names = {"www.example.com": [internet.server], "private.example": [internet.private]}
    namespace = await network.create("s", policy(outbound=False, allow=("other.example.com",)))
    await network.apply("s", policy(outbound=True))

    def ask(host: str) -> str:
        with socket.create_connection(("127.0.0.1", 3128), 5) as client:
            client.sendall(f"CONNECT {host}:8080 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            return client.recv(100).decode()

    assert " 200 " in await in_namespace(namespace, lambda: ask("www.example.com"))
    assert " 403 " in await in_namespace(namespace, lambda: ask("private.example"))
    await network.apply("s", policy(outbound=False))
    assert " 403 " in await in_namespace(namespace, lambda: ask("www.example.com"))


async def test_many_changes_at_once_end_in_a_whole_state(network, internet, policy, reach):
    namespace = await network.create("s", policy(outbound=False))
    on, off = policy(outbound=True), policy(outbound=False)
    await asyncio.gather(*(network.apply("s", on if turn % 2 else off) for turn in range(10)))
    await network.apply("s", on)
    assert (await reach(namespace, internet.server)).startswith("from")


async def test_an_unknown_sandbox_is_not_found(network, policy):
    with pytest.raises(NotFound):
        await network.apply("none", policy(outbound=True))
    with pytest.raises(NotFound):
        await network.dial("none", 80)
    await network.destroy("none")


async def test_dial_reaches_servers_on_loopback_and_on_any_address(network, internet, policy):
    for kind in (policy(outbound=False), policy(outbound=True)):
        namespace = await network.create("s", kind)
        for address in ("127.0.0.1", ""):
            listening = await in_namespace(
                namespace, lambda address=address: socket.create_server((address, 80))
            )
            server = await asyncio.start_server(internet._echo, sock=listening)
            async with server:
                connection = await network.dial("s", 80)
                assert (await connection.read()).startswith(b"from 127.0.0.1")
                await connection.write(b"hello")
                assert await connection.read() == b"hello"
                await connection.aclose()
        await network.destroy("s")


async def test_dial_says_when_nothing_listens(network, policy):
    await network.create("s", policy(outbound=True))
    started = time.monotonic()
    with pytest.raises(Unavailable, match="Nothing listens on port 8000"):
        await network.dial("s", 8000)
    assert time.monotonic() - started < 1
