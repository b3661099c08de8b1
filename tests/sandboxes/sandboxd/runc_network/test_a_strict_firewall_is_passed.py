"""Hosts that drop forwarded packets, as Docker and ufw set them up. Run in a network namespace of
its own, which plays the host: such a policy would cut off everybody else on this one."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PLAYED = r"""
import asyncio, json, shutil, socket, subprocess, sys
from pathlib import Path
from sandboxes.network import NetworkPolicy
from sandboxes.sandboxd.engines.runc.network import Network
from sandboxes.sandboxd.engines.runc.network.namespaces import (
    create_namespace, in_namespace, remove_namespace)
from sandboxes.sandboxd.engines.runc.network.resolvers import Resolvers

directory, chain, with_iptables = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "iptables"
seen = {}

def run(*argv, script=None):
    return subprocess.run(argv, check=True, capture_output=True, text=True, input=script).stdout

def connect():
    with socket.socket() as client:
        client.settimeout(1)
        try:
            client.connect(("198.51.100.2", 80))
        except OSError as error:
            return type(error).__name__
        return "reached"

def filter_table():
    return run("nft", "list", "table", "ip", "filter")

async def main():
    internet = directory / "internet"
    await create_namespace(internet)
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "up0", "type", "veth", "peer", "eth0", "netns", internet)
    run("ip", "address", "add", "198.51.100.1/24", "dev", "up0")
    run("ip", "link", "set", "up0", "up")
    def inside():
        run("ip", "address", "add", "198.51.100.2/24", "dev", "eth0")
        run("ip", "link", "set", "eth0", "up")
        return socket.create_server(("", 80))
    listening = await in_namespace(internet, inside)
    docker = "chain DOCKER-USER {\nreturn\n}\n" if chain == "DOCKER-USER" else ""
    jump = "jump DOCKER-USER\n" if chain == "DOCKER-USER" else ""
    run("nft", "-f", "-", script="table ip filter {\n%schain FORWARD {\n"
        "type filter hook forward priority filter; policy drop;\n%s}\n}\n" % (docker, jump))
    before = filter_table()
    network = Network(directory / "network", resolvers=Resolvers((Path("/none"),)))
    await network.start([])
    on = NetworkPolicy.parse(outbound=True, inbound=False)
    one = await network.create("one", on)
    two = await network.create("two", on)
    seen["reach"] = await in_namespace(one, connect)
    seen["rules"] = filter_table().count("skillyard")
    if with_iptables:
        seen["iptables"] = run("iptables", "-S", chain)
    run("nft", "flush", "ruleset")
    run("nft", "-f", "-", script=before)
    seen["flushed"] = await in_namespace(one, connect)
    await network._host.restore(())
    seen["restored"] = await in_namespace(one, connect)
    await network.destroy("one")
    seen["other"] = await in_namespace(two, connect)
    await network.destroy("two")
    seen["as_before"] = filter_table() == before
    seen["tables"] = run("nft", "list", "tables")
    await network.aclose()
    listening.close()
    remove_namespace(internet)
    seen["directory"] = (directory / "network").exists()
    print(json.dumps(seen))

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def _needs(network: object) -> None:
    """The marks of every test that has a network."""


@pytest.mark.parametrize("chain", ["DOCKER-USER", "FORWARD"])
async def test_links_pass_a_chain_that_drops_and_leave_it_as_it_was(tmp_path: Path, chain: str):
    iptables = shutil.which("iptables") is not None
    process = await asyncio.create_subprocess_exec(
        "unshare",
        "--net",
        "--mount",
        sys.executable,
        "-c",
        PLAYED,
        str(tmp_path),
        chain,
        "iptables" if iptables else "none",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    seen = json.loads(output)
    assert seen["reach"] == "reached"
    assert seen["rules"] == 2
    assert seen["flushed"] != "reached"
    assert seen["restored"] == "reached"
    assert seen["other"] == "reached"
    assert seen["as_before"]
    assert "skillyard" not in seen["tables"]
    assert not seen["directory"]
    if iptables:
        assert seen["iptables"].count("-j ACCEPT") == 2
