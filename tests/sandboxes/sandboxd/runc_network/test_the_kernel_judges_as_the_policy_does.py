"""The rule set against `decide_address`: random policies and addresses, one verdict."""

from __future__ import annotations

import ipaddress
import random
import socket

import pytest

from sandboxes.network import ALWAYS_DENIED, NetworkPolicy, Verdict
from sandboxes.sandboxd.engines.runc.network.namespaces import (
    create_namespace,
    in_namespace,
    remove_namespace,
    run_tool,
)
from sandboxes.sandboxd.engines.runc.network.rules import needs_link, sandbox_ruleset


@pytest.fixture
async def namespace(network, directory):
    """With a default route into nothing: what the rules let pass is sent and lost."""
    path = directory / "judged"

    def lay() -> None:
        run_tool("ip", "link", "add", "sink", "type", "veth", "peer", "name", "drain")
        run_tool("ip", "link", "set", "drain", "up")
        run_tool("ip", "link", "set", "sink", "arp", "off", "up")
        run_tool("ip", "address", "add", "203.0.113.1/32", "dev", "sink")
        run_tool("ip", "route", "add", "default", "dev", "sink")

    await create_namespace(path)
    await in_namespace(path, lay)
    yield path
    remove_namespace(path)


def random_address(rng: random.Random) -> ipaddress.IPv4Address:
    """Near the ranges where rules meet, and one that a packet can be sent to."""
    block = rng.choice(
        [*ALWAYS_DENIED, *map(ipaddress.ip_network, ("198.51.100.0/28", "0.0.0.0/0"))]
    )
    while True:
        address = block[rng.randrange(block.num_addresses)]
        sendable = not (address.is_multicast or address.is_reserved or address.is_loopback)
        if sendable and address not in ipaddress.ip_network("0.0.0.0/8"):
            return address
        block = ipaddress.ip_network("0.0.0.0/0")


def random_policy(rng: random.Random) -> NetworkPolicy:
    def entries() -> list[str]:
        found = {
            str(ipaddress.ip_network(f"{random_address(rng)}/{rng.choice(prefixes)}", strict=False))
            for _ in range(rng.randrange(4))
        }
        return sorted(found)

    prefixes = [0, 8, 12, 16, 28, 30, 32]
    return NetworkPolicy.parse(
        outbound=rng.random() < 0.5, inbound=False, allow=entries(), deny=entries()
    )


def passes(address: str) -> bool:
    """Two datagrams: the refusal of the first is told by the second at the latest."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        try:
            client.connect((address, 9))
            client.send(b"x")
            client.send(b"x")
        except OSError:
            return False
    return True


async def test_one_verdict(namespace):
    rng = random.Random(20_260_101)  # noqa: S311
    seen = {Verdict.ALLOWED: 0, Verdict.DENIED: 0}
    for _ in range(60):
        policy = random_policy(rng)
        if not needs_link(policy):
            continue
        addresses = [str(random_address(rng)) for _ in range(20)]
        entries = [*policy.allowed_networks, *policy.deny]
        addresses += [str(ipaddress.ip_network(e).network_address) for e in entries if e[0] != "0"]
        script = sandbox_ruleset(policy, ("10.255.255.53",))

        def judge(script=script, addresses=addresses) -> dict[str, bool]:
            run_tool("nft", "-f", "-", script=script)
            return {address: passes(address) for address in addresses}

        for address, passed in (await in_namespace(namespace, judge)).items():
            verdict = policy.decide_address(address).verdict
            assert passed is (verdict is Verdict.ALLOWED), (policy, address)
            seen[verdict] += 1
    assert min(seen.values()) > 100, seen
