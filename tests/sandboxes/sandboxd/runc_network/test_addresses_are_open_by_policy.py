"""What a sandbox reaches by address, as a connect from its namespace shows it."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from pathlib import Path

from sandboxes.sandboxd.engines.runc.network.namespaces import in_namespace, run_tool


async def test_off_is_nothing_but_loopback_and_fails_at_once(network, internet, policy, reach):
    namespace = await network.create("off", policy(outbound=False))
    started = time.monotonic()
    assert await reach(namespace, internet.server) == "ENETUNREACH"
    assert await reach(namespace, internet.resolver, 53) == "ENETUNREACH"
    assert time.monotonic() - started < 1
    assert await in_namespace(namespace, socket.if_nameindex) == [(1, "lo")]


async def test_on_reaches_the_internet_under_the_hosts_address(network, internet, policy, reach):
    namespace = await network.create("on", policy(outbound=True))
    assert await reach(namespace, internet.server) == f"from {internet.host}"


async def test_on_keeps_private_ranges_and_the_host_closed(network, internet, policy, reach):
    namespace = await network.create("on", policy(outbound=True))
    server = await asyncio.start_server(internet._echo, internet.host, 8080)
    async with server:
        for address in (internet.private, internet.link_local, internet.host):
            started = time.monotonic()
            assert await reach(namespace, address) in {"ECONNREFUSED", "EHOSTUNREACH"}, address
            assert time.monotonic() - started < 1
        gateway = await in_namespace(namespace, _default_gateway)
        assert await reach(namespace, gateway) == "ECONNREFUSED"


async def test_the_resolver_is_open_for_dns_only_and_only_while_on(
    network, internet, policy, reach
):
    on = await network.create("on", policy(outbound=True))
    assert await reach(on, internet.resolver, 53) == f"from {internet.host}"
    assert await reach(on, internet.resolver, 8080) == "ECONNREFUSED"
    listed = await network.create("listed", policy(outbound=False, allow=(internet.server,)))
    assert await reach(listed, internet.resolver, 53) == "ECONNREFUSED"
    assert network.resolv_conf("on") == f"nameserver {internet.resolver}\n"


async def test_an_allow_entry_opens_what_it_names_even_a_private_address(
    network, internet, policy, reach
):
    allowed = policy(outbound=False, allow=(internet.server, internet.private))
    namespace = await network.create("listed", allowed)
    assert await reach(namespace, internet.server) == f"from {internet.host}"
    assert await reach(namespace, internet.private) == f"from {internet.host}"
    assert await reach(namespace, internet.other) == "ECONNREFUSED"


async def test_nothing_opens_link_local_or_the_host(network, internet, policy, reach):
    everything = policy(
        outbound=True, allow=("0.0.0.0/0", f"{internet.link_local}/32", internet.host)
    )
    namespace = await network.create("all", everything)
    server = await asyncio.start_server(internet._echo, internet.host, 8080)
    async with server:
        assert await reach(namespace, internet.link_local) == "ECONNREFUSED"
        assert await reach(namespace, internet.host) == "ECONNREFUSED"
    assert await reach(namespace, internet.private) == f"from {internet.host}"


async def test_a_port_that_the_host_hands_on_to_a_container_is_still_the_hosts(
    network, internet, policy, reach
):
    """As Docker publishes ports: by a destination NAT that would bypass rules on input."""
    published = f"""
    table ip published {{
      chain prerouting {{
        type nat hook prerouting priority dstnat
        ip daddr {internet.host} tcp dport 8080 dnat to {internet.private}
      }}
      chain postrouting {{
        type nat hook postrouting priority srcnat
        ip daddr {internet.private} masquerade
      }}
    }}
    """
    await asyncio.to_thread(run_tool, "nft", "-f", "-", script=published)
    try:
        assert (await reach(internet.namespace, internet.host)).startswith("from")
        namespace = await network.create("s", policy(outbound=True))
        assert await reach(namespace, internet.host) == "ECONNREFUSED"
    finally:
        await asyncio.to_thread(run_tool, "nft", "delete", "table", "ip", "published")


async def test_deny_beats_the_switch_and_allow_beats_deny(network, internet, policy, reach):
    namespace = await network.create("d", policy(outbound=True, deny=(internet.other,)))
    assert await reach(namespace, internet.server) == f"from {internet.host}"
    assert await reach(namespace, internet.other) == "ECONNREFUSED"
    both = policy(outbound=True, deny=(internet.network, "0.0.0.0/0"), allow=(internet.other,))
    namespace = await network.create("b", both)
    assert await reach(namespace, internet.server) == "ECONNREFUSED"
    assert await reach(namespace, internet.other) == f"from {internet.host}"


async def test_sandboxes_do_not_reach_each_other(network, internet, policy, reach):
    allow_all = policy(outbound=True, allow=("0.0.0.0/0",))
    one = await network.create("one", allow_all)
    two = await network.create("two", allow_all)
    listening = await in_namespace(two, lambda: socket.create_server(("", 8080)))
    server = await asyncio.start_server(internet._echo, sock=listening)
    address = await in_namespace(two, _own_address)
    async with server:
        assert await reach(one, address) == "ECONNREFUSED"
        assert await reach(two, address) == f"from {address}"


async def test_neither_the_host_nor_its_neighbours_reach_into_a_sandbox(
    network, internet, policy, reach
):
    namespace = await network.create("in", policy(outbound=True))
    listening = await in_namespace(namespace, lambda: socket.create_server(("", 8080)))
    server = await asyncio.start_server(internet._echo, sock=listening)
    address = await in_namespace(namespace, _own_address)
    async with server:
        reader = asyncio.open_connection(address, 8080)
        try:
            await asyncio.wait_for(reader, 3)
        except OSError:
            pass
        else:
            raise AssertionError("the host reached into the sandbox past its dial")
        assert await reach(internet.namespace, address) == "ECONNREFUSED"


async def test_udp_is_refused_at_once_too(network, internet, policy):
    namespace = await network.create("listed", policy(outbound=False, allow=(internet.server,)))

    def send() -> str:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(2)
            client.connect((internet.other, 9))
            try:
                client.send(b"x")
                client.recv(10)
            except TimeoutError:
                return "timeout"
            except OSError:
                return "refused"
            return "answered"

    assert await in_namespace(namespace, send) == "refused"


async def test_there_is_no_ipv6(network, internet, policy):
    namespace = await network.create("on", policy(outbound=True))

    def addresses() -> str:
        return Path("/proc/thread-self/net/if_inet6").read_text()

    assert await in_namespace(namespace, addresses) == ""


def _own_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("203.0.113.1", 9))
        return str(probe.getsockname()[0])


def _default_gateway() -> str:
    return subprocess.run(
        ["ip", "route", "show", "default"], check=True, capture_output=True, text=True
    ).stdout.split()[2]
