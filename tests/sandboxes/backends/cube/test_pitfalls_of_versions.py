"""What depends on the cluster's version: deadlines that hang, DNS that stays open, templates that an upgrade has
outgrown."""

from __future__ import annotations

import pytest

from sandboxes.backends.cube.client import CubeClient
from sandboxes.errors import InvalidRequest
from sandboxes.network import CLOSED, OPEN
from sandboxes.testing import SandboxFactory
from sandboxes.testing.base import text_of
from sandboxes.types import ExecRequest
from tests.sandboxes.backends.cube.helpers import EVERY, versions
from tests.sandboxes.backends.fake_cube import FakeCube

pytestmark = pytest.mark.sandbox


async def test_18_no_deadline_is_sent_as_none_and_the_shortest_as_one_millisecond(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    box = await sandbox()
    cube.data_calls.clear()
    forever = ExecRequest(argv=("true",), timeout_s=None)
    assert (await client.run(box, forever)).ok
    short = ExecRequest(argv=("sleep", "5"), timeout_s=0.0001)
    assert (await client.run(box, short)).killed
    starts = [call for call in cube.data_calls if call.url.path.endswith("/Start")]
    assert [call.headers.get("connect-timeout-ms") for call in starts] == [None, "1"]


@pytest.mark.parametrize("timeout_s", [0, -1, -0.5])
def test_18_a_deadline_that_would_hang_is_refused(timeout_s: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        ExecRequest(argv=("true",), timeout_s=timeout_s)


@EVERY
async def test_19_that_closed_sandboxes_cannot_ask_a_dns_server_is_never_promised(
    client: CubeClient, cube: FakeCube
) -> None:
    notes = client.capabilities.notes
    assert client.capabilities.outbound_switch
    assert f"Cube {cube.profile.version} may still ask a DNS server" in notes["outbound_switch"]
    assert "DNS itself is not blocked" in notes["outbound_domain_lists"]


async def test_19_nothing_but_addresses_is_asked_for_in_a_closed_policy(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    """A closed policy says so in the switch and as a block, and lets no resolver in by itself."""
    await sandbox(network=CLOSED)
    await sandbox(network=OPEN)
    closed, opened = [await c.json() for c in cube.control_calls if c.url.path == "/sandboxes"]
    assert closed["allow_internet_access"] is False
    assert closed["network"]["denyOut"] == ["0.0.0.0/0"]
    assert closed["network"]["allowOut"] == []
    assert opened["allow_internet_access"] is True


@versions("0.7", "0.8")
async def test_24_a_template_that_the_cluster_has_outgrown_says_so_and_is_to_be_rebuilt(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory, template: str
) -> None:
    assert client.templates is not None
    cube.cluster.outdated = {template}
    listed = {item.id: item async for item in client.templates.list()}
    assert listed[template].status == "ready"
    assert "older components" in listed[template].error
    build = await client.templates.build_status(template)
    assert (build.status, "rebuild it" in build.error) == ("ready", True)
    with pytest.raises(InvalidRequest, match="older components") as caught:
        await sandbox()
    assert "rebuild the template" in caught.value.message
    assert not caught.value.retryable
    cube.cluster.outdated = set()
    cube.cluster.template_jobs.clear()
    assert (await client.templates.build_status(template)).error == ""
    assert await text_of(client, await sandbox(), "echo up") == "up\n"


@pytest.mark.parametrize(
    "text",
    [
        "snapshot snap-1: agent version 0.7.0 does not match the node's 0.7.1",
        "CubeMaster returned error code 130409: template is stale, needs redo",
        "guest image version mismatch",
    ],
)
async def test_24_a_clone_that_is_refused_for_its_age_is_not_tried_again(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory, text: str
) -> None:
    for status in (409, 500):
        cube.faults.answer("create", status, text)
        with pytest.raises(InvalidRequest, match="older components") as caught:
            await sandbox(template="snap-1")
        assert not caught.value.gone
    assert len(cube.paths("POST")) == 2


@versions("0.5")
async def test_24_a_version_without_the_matrix_says_nothing(
    client: CubeClient, cube: FakeCube, template: str
) -> None:
    assert client.templates is not None
    cube.cluster.outdated = {template}
    assert (await client.templates.build_status(template)).error == ""
    cube.cluster.outdated = set()
