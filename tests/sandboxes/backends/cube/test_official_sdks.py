"""The official SDKs as witnesses: they take the fake for a cluster, and see what our adapter makes."""

from __future__ import annotations

import asyncio
from typing import Any

import cubesandbox
import pytest
from cubesandbox import Config
from cubesandbox import Sandbox as CubeSdk
from e2b import AsyncSandbox

from sandboxes.backends.cube.client import CubeClient
from sandboxes.testing import SandboxFactory
from sandboxes.testing.base import text_of, unique
from sandboxes.types import SandboxState
from tests.sandboxes.backends.cube.helpers import KEEP, body_of, versions
from tests.sandboxes.backends.fake_cube import FakeCube

pytestmark = [
    pytest.mark.sandbox,
    # The SDK leaves its connections to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def config(cube: FakeCube, template: str) -> Config:
    return Config(
        api_url=cube.api_url,
        api_key=cube.api_key,
        template_id=template,
        proxy_node_ip="127.0.0.1",
        proxy_port=cube.proxy_port,
        sandbox_domain="cube.app",
    )


def test_the_sdk_is_the_version_that_we_know() -> None:
    assert cubesandbox.__version__ == "0.7.3"


async def test_the_cube_sdk_lives_a_whole_life_at_the_fake(
    config: Config, cube: FakeCube, client: CubeClient
) -> None:
    tag = unique()

    def life() -> dict[str, Any]:
        box = CubeSdk.create(
            config=config, timeout=200, metadata={"tag": tag}, env_vars={"FROM": "sdk"}
        )
        try:
            ran = box.commands.run("echo $FROM; id -un", user="user")
            box.files.write("/tmp/note", "written")
            read = box.files.read("/tmp/note")
            taken = box.create_snapshot()
            listed = [item.snapshot_id for item in CubeSdk.list_snapshots(config=config)[0]]
            box.pause(wait=True)
            paused = box.get_info()
            awake = CubeSdk.connect(box.sandbox_id, config=config)
            after = awake.commands.run("cat /tmp/note", user="user").stdout
            second = CubeSdk.create(template=taken.snapshot_id, config=config, timeout=100)
            copied = second.commands.run("cat /tmp/note", user="user").stdout
            second.kill()
            CubeSdk.delete_snapshot(taken.snapshot_id, config=config)
        finally:
            box.kill()
        return {
            "ran": ran.stdout,
            "read": read,
            "listed": taken.snapshot_id in listed,
            "paused": str(paused),
            "after": after,
            "copied": copied,
        }

    seen = await asyncio.to_thread(life)
    assert seen["ran"] == "sdk\nuser\n"
    assert seen["read"] == "written"
    assert seen["listed"]
    assert "paused" in seen["paused"]
    assert (seen["after"], seen["copied"]) == ("written", "written")
    assert cube.cluster.boxes == {}


async def test_what_we_create_the_cube_sdk_sees_and_the_other_way_round(
    config: Config, client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    ours = await sandbox(timeout=KEEP)
    await text_of(client, ours, "echo ours > /tmp/f")

    def look() -> tuple[str, str]:
        theirs = CubeSdk.create(config=config, timeout=200)
        theirs.commands.run("echo theirs > /tmp/f", user="user")
        found = CubeSdk.connect(ours.id, config=config)
        return theirs.sandbox_id, found.sandbox_id

    their_id, found = await asyncio.to_thread(look)
    assert found == ours.id
    theirs = await client.connect(their_id)
    assert await text_of(client, theirs, "cat /tmp/f") == "theirs\n"
    assert (await client.get(their_id)).state is SandboxState.RUNNING
    await client.delete(their_id)


async def test_our_create_body_is_the_sdks_where_both_say_the_same(
    config: Config, client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    await sandbox(timeout=KEEP)

    def create() -> None:
        CubeSdk.create(
            config=config,
            timeout=300,
            allow_internet_access=False,
            network={"allow_public_traffic": False, "deny_out": ["0.0.0.0/0"]},
            lifecycle={"on_timeout": "pause", "auto_resume": False},
        ).kill()

    await asyncio.to_thread(create)
    ours, theirs = [
        await body_of(call)
        for call in cube.control_calls
        if (call.method, call.url.path) == ("POST", "/sandboxes")
    ]
    for key in ("templateID", "timeout", "allow_internet_access"):
        assert ours[key] == theirs[key], key
    assert ours["lifecycle"] == theirs["lifecycle"]
    for key, value in theirs["network"].items():
        assert ours["network"][key] == value, key


@versions("0.8")
async def test_the_e2b_sdk_lives_at_0_8(cube: FakeCube, client: CubeClient, template: str) -> None:
    options: dict[str, Any] = {
        "api_key": "e2b_" + "0" * 40,
        "api_url": cube.api_url,
        "domain": "cube.app",
        "api_headers": {"X-API-Key": cube.api_key},
    }
    tag = unique()
    theirs = await AsyncSandbox.create(
        template, timeout=200, metadata={"tag": tag}, secure=False, **options
    )
    by_path = f"{cube.proxy_url}/sandbox/{theirs.sandbox_id}/49983"
    near = await AsyncSandbox.connect(
        theirs.sandbox_id, timeout=200, sandbox_url=by_path, **options
    )
    assert (await near.commands.run("echo $((6*7))", user="user")).stdout == "42\n"
    assert (await client.get(theirs.sandbox_id)).metadata["tag"] == tag
    assert await near.kill()
    assert cube.cluster.boxes == {}


@versions("0.7")
async def test_the_e2b_sdk_of_today_finds_no_route_before_0_8(
    cube: FakeCube, template: str
) -> None:
    with pytest.raises(Exception, match="405"):
        await AsyncSandbox.create(
            template,
            api_key="e2b_" + "0" * 40,
            api_url=cube.api_url,
            domain="cube.app",
            api_headers={"X-API-Key": cube.api_key},
        )
