"""A small internet of our own: a network namespace with servers, routed through the host.

Its addresses are cut from TEST-NET-2 by process, so that two runs on one host don't meet.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from sandboxes.network import NetworkPolicy
from sandboxes.sandboxd.engines.runc.network import Network
from sandboxes.sandboxd.engines.runc.network.namespaces import (
    create_namespace,
    in_namespace,
    remove_namespace,
)
from sandboxes.sandboxd.engines.runc.network.resolvers import Resolvers

HERE = Path(__file__).parent
_missing = [tool for tool in ("nft", "ip") if shutil.which(tool) is None]
_reason = "needs root" if os.geteuid() != 0 else f"needs {' and '.join(_missing)}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and "directory" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.sandbox)
            item.add_marker(pytest.mark.skipif(os.geteuid() != 0 or bool(_missing), reason=_reason))


def run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


class Internet:
    """`server`, `other`: public addresses. `private`, `link_local`: what must stay closed.
    `resolver`: a private address that serves DNS. `host`: the host's own address there."""

    def __init__(self, directory: Path) -> None:
        slice_of = os.getpid() % 31
        base = f"198.51.100.{8 * slice_of}"
        first = int(base.rpartition(".")[2])
        self.network = f"{base}/29"
        self.host = f"198.51.100.{first + 1}"
        self.server = f"198.51.100.{first + 2}"
        self.other = f"198.51.100.{first + 3}"
        self.private = f"10.99.{slice_of}.5"
        self.resolver = f"10.99.{slice_of}.53"
        self.link_local = f"169.254.{slice_of + 1}.5"
        self.namespace = directory / "internet"
        self.link = f"inet{slice_of}"
        self.names: dict[str, list[str]] = {}
        self._stack = AsyncExitStack()
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 8080

    async def resolve(self, name: str) -> list[str]:
        if name not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return self.names[name]

    async def start(self) -> None:
        await create_namespace(self.namespace)
        run("ip", "link", "add", self.link, "type", "veth", "peer", "eth0", "netns", self.namespace)
        run("ip", "address", "add", f"{self.host}/29", "dev", self.link)
        run("ip", "link", "set", self.link, "up")
        extra = [self.private, self.resolver, self.link_local]
        for address in extra:
            run("ip", "route", "add", f"{address}/32", "via", self.server)

        def inside() -> None:
            for address in (f"{self.server}/29", f"{self.other}/29", *(f"{a}/32" for a in extra)):
                run("ip", "address", "add", address, "dev", "eth0")
            run("ip", "link", "set", "eth0", "up")
            run("ip", "route", "add", "default", "via", self.host)

        await in_namespace(self.namespace, inside)
        await self.serve(self.port, self._echo)
        await self.serve(53, self._echo)

    async def _echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Says where it was called from, then echoes."""
        self._writers.add(writer)
        writer.write(f"from {writer.get_extra_info('peername')[0]}\n".encode())
        while chunk := await reader.read(65536):
            writer.write(chunk)
        writer.close()

    async def serve(
        self,
        port: int,
        handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    ) -> None:
        """At every address of the internet."""
        listening = await in_namespace(self.namespace, lambda: socket.create_server(("", port)))
        server = await asyncio.start_server(handler, sock=listening)
        self._stack.push_async_callback(server.wait_closed)
        self._stack.callback(server.close)

    async def stop(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        await self._stack.aclose()
        run("ip", "link", "delete", self.link)
        remove_namespace(self.namespace)


@pytest.fixture
def directory() -> AsyncIterator[Path]:
    """Where namespaces are mounted; short, and gone afterwards with nothing in it."""
    path = Path(tempfile.mkdtemp(prefix="net-", dir="/run"))
    yield path
    assert not path.exists() or os.listdir(path) == []
    if path.exists():
        path.rmdir()


@pytest.fixture
async def internet(directory: Path) -> AsyncIterator[Internet]:
    place = directory.with_name(directory.name + "-internet")
    place.mkdir()
    internet = Internet(place)
    try:
        await internet.start()
        yield internet
    finally:
        await internet.stop()
        place.rmdir()


@pytest.fixture
async def make_network(
    directory: Path, internet: Internet, tmp_path: Path
) -> AsyncIterator[Callable[[], Network]]:
    conf = tmp_path / "resolv.conf"
    conf.write_text(f"nameserver {internet.resolver}\n")
    made: list[Network] = []

    def make() -> Network:
        made.append(Network(directory, resolvers=Resolvers((conf,)), resolve=internet.resolve))
        return made[-1]

    yield make
    for network in made:
        await network.aclose()


@pytest.fixture
async def network(make_network: Callable[[], Network]) -> AsyncIterator[Network]:
    """Started, empty; everything of it is removed afterwards, and checked to be gone."""
    network = make_network()
    await network.start([])
    yield network
    await network.aclose()
    cleaner = make_network()
    await cleaner.start([])
    tag = network._host.tag
    assert tag not in run("ip", "link", "show")
    assert tag not in run("nft", "list", "ruleset")


def policy(
    *, outbound: bool, allow: tuple[str, ...] = (), deny: tuple[str, ...] = ()
) -> NetworkPolicy:
    return NetworkPolicy.parse(outbound=outbound, inbound=False, allow=allow, deny=deny)


@pytest.fixture(name="policy")
def policy_fixture() -> Callable[..., NetworkPolicy]:
    return policy


@pytest.fixture
def reach() -> Callable[..., Awaitable[str]]:
    """reach(namespace, address, port): the server's greeting, or the name of the errno."""

    async def attempt(namespace: Path, address: str, port: int = 8080) -> str:
        def connect() -> str:
            with socket.socket() as client:
                client.settimeout(3)
                try:
                    client.connect((address, port))
                    return client.recv(100).decode().strip()
                except TimeoutError:
                    return "TIMEOUT"
                except OSError as error:
                    return errno.errorcode.get(error.errno or 0, str(error))

        return await in_namespace(namespace, connect)

    return attempt
