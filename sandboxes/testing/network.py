"""Outbound: the switch and the two lists, tried against servers that are really there."""

from __future__ import annotations

import pytest

from sandboxes.client import SandboxClient
from sandboxes.network import ANYWHERE, CLOSED, OPEN, NetworkPolicy
from sandboxes.testing.base import Contract, Outside, SandboxFactory, Target, needs, shell
from sandboxes.types import ExecResult, Sandbox

__all__ = ["NetworkUpdateContract", "OutboundContract", "OutboundNameContract"]


async def fetch(
    client: SandboxClient, box: Sandbox, target: Target, *, by_name: bool
) -> ExecResult:
    return await shell(
        client, box, f"curl --silent --show-error --fail --max-time 5 {target.url(by_name=by_name)}"
    )


async def reaches(
    client: SandboxClient, box: Sandbox, target: Target, *, by_name: bool = False
) -> None:
    result = await fetch(client, box, target, by_name=by_name)
    assert (result.stdout.decode().strip(), result.stderr) == (target.body, b"")


async def misses(
    client: SandboxClient, box: Sandbox, target: Target, *, by_name: bool = False
) -> None:
    result = await fetch(client, box, target, by_name=by_name)
    assert not result.ok, "it is reached"
    assert target.body.encode() not in result.stdout


def policy(
    *, outbound: bool, allow: tuple[str, ...] = (), deny: tuple[str, ...] = ()
) -> NetworkPolicy:
    return NetworkPolicy.parse(outbound=outbound, inbound=False, allow=allow, deny=deny)


class OutboundContract(Contract):
    stands_on = ("outbound_switch",)

    async def test_on_reaches_the_world(
        self, client: SandboxClient, sandbox: SandboxFactory, outside: Outside
    ) -> None:
        box = await sandbox(network=OPEN)
        await reaches(client, box, outside.first)
        await reaches(client, box, outside.second)

    async def test_off_reaches_nothing(
        self, client: SandboxClient, sandbox: SandboxFactory, outside: Outside
    ) -> None:
        box = await sandbox(network=CLOSED)
        await misses(client, box, outside.first)
        await misses(client, box, outside.second)

    async def test_loopback_works_while_off(
        self, client: SandboxClient, sandbox: SandboxFactory
    ) -> None:
        box = await sandbox(network=CLOSED)
        script = (
            "cd /tmp && echo inside > index.html && (python3 -m http.server 8123 >/dev/null 2>&1 &)"
            "; curl --silent --retry 20 --retry-connrefused --retry-delay 0 --retry-max-time 10"
            " http://127.0.0.1:8123/"
        )
        assert (await shell(client, box, script)).stdout == b"inside\n"

    @needs("outbound_cidr_lists")
    async def test_allow_opens_one_address(
        self, client: SandboxClient, sandbox: SandboxFactory, outside: Outside
    ) -> None:
        box = await sandbox(network=policy(outbound=False, allow=(outside.first.address,)))
        await reaches(client, box, outside.first)
        await misses(client, box, outside.second)

    @needs("outbound_cidr_lists")
    async def test_deny_closes_one_address(
        self, client: SandboxClient, sandbox: SandboxFactory, outside: Outside
    ) -> None:
        box = await sandbox(network=policy(outbound=True, deny=(outside.first.address,)))
        await misses(client, box, outside.first)
        await reaches(client, box, outside.second)

    @needs("outbound_cidr_lists")
    async def test_allow_beats_deny(
        self, client: SandboxClient, sandbox: SandboxFactory, outside: Outside
    ) -> None:
        rules = policy(outbound=True, allow=(outside.first.address,), deny=(ANYWHERE,))
        box = await sandbox(network=rules)
        await reaches(client, box, outside.first)
        await misses(client, box, outside.second)


class OutboundNameContract(Contract):
    """Needs servers outside that have names."""

    stands_on = ("outbound_switch", "outbound_domain_lists")

    @pytest.fixture(autouse=True)
    def _named(self, outside: Outside) -> None:
        if outside.first.name is None or outside.second.name is None:
            pytest.skip("the servers outside have no names")

    async def test_allow_opens_one_name(
        self, client: SandboxClient, sandbox: SandboxFactory, outside: Outside
    ) -> None:
        box = await sandbox(network=policy(outbound=False, allow=(outside.first.name or "",)))
        await reaches(client, box, outside.first, by_name=True)
        await misses(client, box, outside.second, by_name=True)
        await misses(client, box, outside.second)

    async def test_a_wildcard_opens_the_names_below(
        self, client: SandboxClient, sandbox: SandboxFactory, outside: Outside
    ) -> None:
        parent = (outside.first.name or "").split(".", 1)[1]
        box = await sandbox(network=policy(outbound=False, allow=(f"*.{parent}",)))
        await reaches(client, box, outside.first, by_name=True)
        await misses(client, box, outside.second, by_name=True)


class NetworkUpdateContract(Contract):
    stands_on = ("network_update", "outbound_switch")

    async def test_a_running_sandbox_follows_the_switch(
        self, client: SandboxClient, sandbox: SandboxFactory, outside: Outside
    ) -> None:
        assert client.network is not None
        box = await sandbox(network=OPEN)
        await reaches(client, box, outside.first)
        await client.network.update(box.id, CLOSED)
        await misses(client, box, outside.first)
        await client.network.update(box.id, OPEN)
        await reaches(client, box, outside.first)

    @needs("outbound_cidr_lists")
    async def test_an_update_replaces_the_lists(
        self, client: SandboxClient, sandbox: SandboxFactory, outside: Outside
    ) -> None:
        assert client.network is not None
        box = await sandbox(network=policy(outbound=False, allow=(outside.first.address,)))
        await client.network.update(box.id, policy(outbound=False, allow=(outside.second.address,)))
        await misses(client, box, outside.first)
        await reaches(client, box, outside.second)

    async def test_updating_twice_is_fine(
        self, client: SandboxClient, sandbox: SandboxFactory
    ) -> None:
        assert client.network is not None
        box = await sandbox(network=OPEN)
        await client.network.update(box.id, CLOSED)
        await client.network.update(box.id, CLOSED)
        assert (await shell(client, box, "true")).ok
