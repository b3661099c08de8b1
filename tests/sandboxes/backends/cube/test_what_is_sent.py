"""Which routes and bodies a Cube cluster gets, by version and by plane."""

from __future__ import annotations

import pytest

from sandboxes import registry
from sandboxes.backends.cube.client import CubeClient
from sandboxes.errors import (
    InvalidRequest,
)
from sandboxes.network import CLOSED, OPEN, NetworkPolicy
from sandboxes.testing import SandboxFactory
from sandboxes.testing.base import files_of, text_of, unique
from sandboxes.types import (
    OnTimeout,
    SandboxState,
    TimeoutPolicy,
)
from tests.sandboxes.backends.cube.helpers import EVERY, KEEP, body_of, pause, versions
from tests.sandboxes.backends.fake_cube import FakeCube

pytestmark = pytest.mark.sandbox


@EVERY
async def test_the_version_is_found_and_nothing_is_made(cube: FakeCube, client: CubeClient) -> None:
    assert client.features.version == cube.profile.version
    assert client.capabilities.network_update is cube.profile.network_update
    assert (client.network is None) is not cube.profile.network_update
    if not cube.profile.network_update:
        assert "0.7" in client.capabilities.notes["network_update"]
    assert cube.cluster.boxes == {}


@EVERY
async def test_a_life_on_every_version(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    tag = unique()
    box = await sandbox(timeout=KEEP, metadata={"tag": tag}, env={"COLOUR": "blue"})
    assert await text_of(client, box, "echo $COLOUR > /tmp/f; cat /tmp/f") == "blue\n"
    await files_of(client).write(box, "/workspace/output/a.bin", bytes(range(256)))
    assert client.snapshots is not None
    taken = await client.snapshots.create(box.id, name=f"n-{tag}")
    await pause(client, box.id)
    assert (await client.get(box.id)).state is SandboxState.PAUSED
    again = await client.connect(box.id, traffic_token=box.traffic_token)
    assert again.resumed
    assert await text_of(client, again, "cat /tmp/f") == "blue\n"
    second = await sandbox(template=taken.id)
    assert await text_of(client, second, "cat /tmp/f") == "blue\n"
    await client.delete(second.id)
    await client.delete(box.id)
    await client.snapshots.delete(taken.id)
    await client.snapshots.delete(taken.id)


@EVERY
async def test_a_bad_template_is_an_invalid_request_and_not_a_lost_sandbox(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await sandbox(template="tpl-none")
    assert not caught.value.gone


@versions("0.8")
async def test_20_the_older_create_is_used_where_there_is_a_newer(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    await sandbox()
    assert "/sandboxes" in cube.paths("POST")
    assert "/v2/sandboxes" not in cube.paths("POST")


async def test_both_switches_and_the_lifecycle_travel_on_every_create(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    policy = TimeoutPolicy(timeout_s=70.2, on_timeout=OnTimeout.PAUSE, auto_resume=True)
    await sandbox(network=OPEN, timeout=policy)
    await sandbox(network=CLOSED)
    first, second = [await body_of(call) for call in cube.control_calls if call.method == "POST"]
    assert first["allow_internet_access"] is True
    assert first["network"] == {"allowPublicTraffic": False, "allowOut": [], "denyOut": []}
    assert first["lifecycle"] == {"onTimeout": "pause", "autoResume": True}
    assert first["timeout"] == 71
    assert second["allow_internet_access"] is False
    assert second["network"]["denyOut"] == ["0.0.0.0/0"]
    assert second["lifecycle"] == {"onTimeout": "kill"}


async def test_the_key_stays_on_the_control_plane_and_the_token_on_the_data_plane(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    box = await sandbox()
    await text_of(client, box, "true")
    await files_of(client).write(box, "/tmp/x", b"x")
    await client.connect(box.id)
    assert box.traffic_token
    assert all(call.headers["x-api-key"] == cube.api_key for call in cube.control_calls)
    assert not any("e2b-traffic-access-token" in call.headers for call in cube.control_calls)
    assert cube.data_calls
    for call in cube.data_calls:
        assert cube.api_key not in str(call.headers.raw)
        assert call.headers["e2b-traffic-access-token"] == box.traffic_token
        assert call.headers["host"] == f"49983-{box.id}.cube.app"
        assert call.headers["accept-encoding"] == "identity"
    uploads = [call for call in cube.data_calls if call.url.path == "/files"]
    assert uploads[0].headers["content-type"].startswith("multipart/form-data")


@pytest.mark.parametrize("key", ["host-mount", "hostdir-mount", "Host-Mount"])
async def test_metadata_that_would_mount_the_host_is_refused(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory, key: str
) -> None:
    with pytest.raises(InvalidRequest, match=r"(?i)mount"):
        await sandbox(metadata={key: '[{"hostPath":"/data/shared/x"}]'})
    assert cube.control_calls == []


async def test_our_own_mark_is_not_shown(client: CubeClient, sandbox: SandboxFactory) -> None:
    tag = unique()
    box = await sandbox(metadata={"tag": tag})
    shown = (await client.get(box.id)).metadata
    assert shown["tag"] == tag
    assert not any("skillyard-made" in key for key in shown)
    with pytest.raises(InvalidRequest):
        await sandbox(metadata={"skillyard-made": "x"})


async def test_dns_servers_stay_reachable_where_only_names_are_allowed(
    cube: FakeCube, template: str
) -> None:
    settings = cube.settings(dns_servers="203.0.113.53\n203.0.113.54")
    named = NetworkPolicy.parse(outbound=False, inbound=False, allow=["pypi.example"])
    async with await registry.open_client("cube", settings) as client:
        factory = SandboxFactory(client, template)
        await factory(network=named)
        await factory(network=CLOSED)
        await factory.aclose()
    made = [await body_of(c) for c in cube.control_calls if c.url.path == "/sandboxes"]
    assert made[0]["network"]["allowOut"] == ["203.0.113.53/32", "203.0.113.54/32", "pypi.example"]
    assert made[1]["network"]["allowOut"] == []
    with pytest.raises(InvalidRequest, match="DNS"):
        await registry.open_client("cube", cube.settings(dns_servers="ns.example"))
