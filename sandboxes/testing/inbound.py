"""Inbound: a sandbox's own ports, open to all or only with the traffic token."""

from __future__ import annotations

import httpx
import pytest

from sandboxes.client import InboundAccess, SandboxClient
from sandboxes.errors import Unsupported
from sandboxes.network import NetworkPolicy
from sandboxes.testing.base import Contract, SandboxFactory, needs, text_of, until
from sandboxes.types import Sandbox

__all__ = ["InboundContract"]

_PORT = 8080
_SERVE = (
    "mkdir -p /tmp/www && cd /tmp/www && echo served > index.html &&"
    f"(setsid nohup python3 -m http.server {_PORT} >/dev/null 2>&1 </dev/null &);"
    f"curl --silent --retry 50 --retry-connrefused --retry-delay 0 --retry-max-time 15"
    f" http://127.0.0.1:{_PORT}/"
)


def ports_of(client: SandboxClient) -> InboundAccess:
    assert client.inbound is not None
    return client.inbound


async def dial(
    client: SandboxClient, box: Sandbox, *, token: str | None = None, port: int = _PORT
) -> httpx.Response:
    endpoint = ports_of(client).endpoint(box, port)
    headers = dict(endpoint.headers)
    if token is not None:
        headers[InboundAccess.TOKEN_HEADER] = token
    transport = httpx.AsyncHTTPTransport(uds=endpoint.socket_path)
    async with httpx.AsyncClient(transport=transport, trust_env=False) as http:
        return await http.get(endpoint.url, headers=headers, timeout=20)


class InboundContract(Contract):
    @pytest.fixture(autouse=True)
    def _reachable(self, client: SandboxClient) -> None:
        if client.inbound is None:
            pytest.skip("this backend's ports cannot be reached from outside")

    @needs("inbound_switch")
    async def test_open_to_all(self, client: SandboxClient, sandbox: SandboxFactory) -> None:
        box = await sandbox(network=NetworkPolicy(outbound=False, inbound=True))
        await text_of(client, box, _SERVE)
        answer = await dial(client, box)
        assert (answer.status_code, answer.text) == (200, "served\n")

    @needs("inbound_switch", "inbound_token")
    async def test_closed_without_the_token(
        self, client: SandboxClient, sandbox: SandboxFactory
    ) -> None:
        box = await sandbox(network=NetworkPolicy(outbound=False, inbound=False))
        await text_of(client, box, _SERVE)
        assert (await dial(client, box)).status_code == 403
        assert (await dial(client, box, token=box.id)).status_code == 403

    @needs("inbound_token")
    async def test_the_token_opens_it(self, client: SandboxClient, sandbox: SandboxFactory) -> None:
        box = await sandbox(network=NetworkPolicy(outbound=False, inbound=False))
        assert box.traffic_token
        await text_of(client, box, _SERVE)
        answer = await dial(client, box, token=box.traffic_token)
        assert (answer.status_code, answer.text) == (200, "served\n")

    @needs("inbound_token")
    async def test_one_sandboxes_token_does_not_open_another(
        self, client: SandboxClient, sandbox: SandboxFactory
    ) -> None:
        closed = NetworkPolicy(outbound=False, inbound=False)
        one, two = await sandbox(network=closed), await sandbox(network=closed)
        await text_of(client, two, _SERVE)
        assert (await dial(client, two, token=one.traffic_token)).status_code == 403

    @needs("inbound_switch")
    async def test_a_port_where_nothing_listens_is_a_bad_gateway(
        self, client: SandboxClient, sandbox: SandboxFactory
    ) -> None:
        box = await sandbox(network=NetworkPolicy(outbound=False, inbound=True))
        assert (await dial(client, box, port=8099)).status_code == 502

    @needs("inbound_switch", "inbound_token", "network_update")
    async def test_the_switch_of_a_running_sandbox_is_never_ignored(
        self, client: SandboxClient, sandbox: SandboxFactory
    ) -> None:
        """Some backends fix inbound at create: they must say so, and change nothing."""
        assert client.network is not None
        box = await sandbox(network=NetworkPolicy(outbound=False, inbound=True))
        await text_of(client, box, _SERVE)
        try:
            await client.network.update(box.id, NetworkPolicy(outbound=False, inbound=False))
        except Unsupported:
            assert (await dial(client, box)).status_code == 200
            return
        assert (await dial(client, box)).status_code == 403
        again = await client.connect(box.id)
        assert again.traffic_token
        assert (await dial(client, again, token=again.traffic_token)).status_code == 200
        await client.network.update(box.id, NetworkPolicy(outbound=False, inbound=True))
        assert (await dial(client, box)).status_code == 200

    @needs("inbound_token", "pause")
    async def test_the_stored_token_opens_it_after_a_pause(
        self, client: SandboxClient, sandbox: SandboxFactory
    ) -> None:
        box = await sandbox(network=NetworkPolicy(outbound=False, inbound=False))
        await text_of(client, box, _SERVE)
        assert client.pausing is not None
        await client.pausing.pause(box.id)
        awake = await client.connect(box.id, traffic_token=box.traffic_token)

        async def served() -> bool:
            return (await dial(client, awake, token=awake.traffic_token)).status_code == 200

        await until(served, within_s=10)
