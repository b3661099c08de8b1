"""Destroy, failures and crashes. The `network` fixture checks the host after every test; these
look closer, or break things first."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxes.errors import Unsupported
from sandboxes.sandboxd.engines.runc.network import Network
from sandboxes.sandboxd.engines.runc.network.namespaces import in_namespace


def run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


async def test_destroy_removes_all_of_one_and_nothing_of_others(
    network, internet, policy, reach, directory
):
    await network.create("one", policy(outbound=True))
    two = await network.create("two", policy(outbound=True))
    await network.create("names", policy(outbound=False, allow=("www.example.com",)))
    for _ in range(2):
        await network.destroy("one")
        await network.destroy("names")
    assert {path.name for path in directory.iterdir()} == {"two", "two.json"}
    assert str(directory / "one") not in run("cat", "/proc/self/mountinfo")
    assert (await reach(two, internet.server)).startswith("from")
    await network.destroy("two")
    assert list(directory.iterdir()) == []


async def test_the_rules_of_others_stay(network, internet, policy):
    run("nft", "add", "table", "inet", "someone_else")
    try:
        await network.create("s", policy(outbound=True))
        await network.destroy("s")
        assert "someone_else" in run("nft", "list", "tables")
    finally:
        run("nft", "delete", "table", "inet", "someone_else")


async def test_no_descriptor_or_thread_is_left(network, internet, policy):
    async def cycle() -> None:
        await network.create("s", policy(outbound=False, allow=("www.example.com",)))
        await network.apply("s", policy(outbound=True))
        await network.destroy("s")

    await cycle()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        await cycle()
    await asyncio.sleep(0)
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_a_create_that_fails_leaves_nothing(make_network, internet, policy, directory):
    route = ["10.213.7.0/24", "via", internet.server]
    network: Network = make_network()
    await network.start([])
    run("ip", "route", "add", *route)
    try:
        with pytest.raises(Unsupported, match=r"10\.213\.0\.0/16 overlaps the host's route"):
            await network.create("s", policy(outbound=True))
    finally:
        run("ip", "route", "delete", *route)
    assert list(directory.iterdir()) == []


async def test_a_create_that_is_cancelled_leaves_nothing(network, policy, directory):
    for delay in (0, 0.001, 0.005, 0.01, 0.02):
        task = asyncio.create_task(network.create("s", policy(outbound=True)))
        await asyncio.sleep(delay)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            await network.destroy("s")
        assert list(directory.iterdir()) == []


CRASHER = """
import asyncio, os, signal, sys
from pathlib import Path
from sandboxes.network import NetworkPolicy
from sandboxes.sandboxd.engines.runc.network import Network
from sandboxes.sandboxd.engines.runc.network.resolvers import Resolvers

async def main():
    network = Network(Path(sys.argv[1]), resolvers=Resolvers((Path(sys.argv[2]),)))
    await network.start([])
    def policy(outbound, *allow):
        return NetworkPolicy.parse(outbound=outbound, inbound=False, allow=allow)
    await network.create("live", policy(True))
    await network.create("names", policy(False, "www.example.com"))
    await network.create("dead", policy(True))
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.fixture
async def crashed(internet, directory: Path, tmp_path: Path) -> Path:
    """A directory that another process left when it was killed, with three sandboxes."""
    conf = tmp_path / "resolv.conf"
    conf.write_text(f"nameserver {internet.resolver}\n")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CRASHER, str(directory), str(conf)
    )
    assert await process.wait() == -9
    return directory


async def test_a_crash_is_recovered(crashed, make_network, internet, policy, reach):
    internet.names = {"www.example.com": [internet.server]}
    network: Network = make_network()
    await network.start(["live", "names"])
    try:
        assert (await reach(crashed / "live", internet.server)).startswith("from")
        assert not (crashed / "dead").exists()
        assert network.proxy_env("names")["HTTP_PROXY"] == "http://127.0.0.1:3128"

        def ask() -> bytes:
            with socket.create_connection(("127.0.0.1", 3128), 5) as client:
                client.sendall(b"CONNECT www.example.com:8080 HTTP/1.1\r\nHost: x\r\n\r\n")
                return client.recv(100)

        assert b" 200 " in await in_namespace(crashed / "names", ask)
        await network.apply("live", policy(outbound=False))
        assert await reach(crashed / "live", internet.server) == "ENETUNREACH"
    finally:
        for name in ("live", "names"):
            await network.destroy(name)


async def test_what_a_crash_left_half_done_is_finished_or_removed(
    crashed, make_network, internet, reach
):
    (crashed / "live.json.partial").write_text('{"pol')
    (crashed / "dead.json").write_text("{torn")
    (crashed / "bare").touch()
    network: Network = make_network()
    link = next(name for name in network._host.link_names())
    run("ip", "link", "delete", link)
    await network.start(["live", "names"])
    try:
        assert (await reach(crashed / "live", internet.server)).startswith("from")
        assert not (crashed / "bare").exists()
        assert len(network._host.link_names()) == 1
    finally:
        await network.destroy("live")
        await network.destroy("names")


async def test_nothing_live_means_nothing_left(crashed, make_network):
    network: Network = make_network()
    await network.start([])
    assert list(crashed.iterdir()) == []
    assert network._host.tag not in run("nft", "list", "ruleset")
    assert network._host.tag not in run("ip", "link", "show")
