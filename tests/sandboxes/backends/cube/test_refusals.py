"""What Cube refuses, and how; and what only looks like a refusal."""

from __future__ import annotations

import pytest

from sandboxes import registry
from sandboxes.backends.cube.client import CubeClient
from sandboxes.errors import (
    Authentication,
    Capacity,
    Conflict,
    InvalidRequest,
    NotFound,
    SandboxError,
    TimedOut,
    Unavailable,
    Unsupported,
)
from sandboxes.testing import SandboxFactory
from sandboxes.testing.base import text_of
from tests.sandboxes.backends.cube.helpers import KEEP, pause
from tests.sandboxes.backends.fake_cube import FakeCube

pytestmark = pytest.mark.sandbox


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (408, None, TimedOut),
        (500, "CubeMaster returned error code 130404: not found", NotFound),
        (500, "CubeMaster returned error code 130400: bad", InvalidRequest),
        (500, "CubeMaster returned error code 130409: busy", Conflict),
        (500, "CubeMaster returned error code 130490: wrong state", Conflict),
        (500, "CubeMaster returned error code 130595: deadline exceeded", TimedOut),
        (500, "boom", Unavailable),
        (500, None, Unavailable),
        (502, None, Unavailable),
        (401, "unauthorized", Authentication),
        (429, "too many requests", Capacity),
        (409, "resume rejected by paused_resource_release_ratio policy", Capacity),
        (501, "not implemented", Unsupported),
    ],
)
async def test_refusals_have_their_kind(
    client: CubeClient, cube: FakeCube, status: int, message: str | None, kind: type[SandboxError]
) -> None:
    cube.faults.answer("get", status, message)
    with pytest.raises(SandboxError) as caught:
        await client.get("abc123")
    assert type(caught.value) is kind
    assert caught.value.op == "get"
    assert caught.value.provider == "cube"
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("body", [b"", b"not found", b"<html>404</html>", b'{"detail":"x"}'])
async def test_a_404_in_other_words_never_means_gone(
    client: CubeClient, cube: FakeCube, body: bytes
) -> None:
    cube.faults.answer("get", 404, body=body)
    with pytest.raises(Unavailable):
        await client.get("abc123")


async def test_the_frameworks_own_refusal_is_an_invalid_request(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    cube.faults.answer("create", 422, body=b"Failed to deserialize the JSON body")
    with pytest.raises(InvalidRequest):
        await sandbox()


async def test_a_killed_sandbox_is_gone_only_by_the_control_planes_word(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    box = await sandbox()
    for status, code in ((410, 310410), (500, 310507)):
        body = b'{"code":%d,"message":"x"}' % code
        cube.faults.answer("proxy", status, body=body)
        with pytest.raises(SandboxError) as caught:
            await text_of(client, box, "true")
        assert not caught.value.gone
    await client.delete(box.id)
    with pytest.raises(NotFound):
        await text_of(client, box, "true")


async def test_a_wrong_key_is_told_when_opened(cube: FakeCube) -> None:
    with pytest.raises(Authentication):
        await registry.open_client("cube", cube.settings(api_key="wrong"))


async def test_a_lost_traffic_token_keeps_the_sandbox(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    box = await sandbox(timeout=KEEP)
    async with await registry.open_client("cube", cube.settings()) as other:
        handle = await other.connect(box.id)
        assert handle.traffic_token is None
        await pause(client, box.id)
        handle = await other.connect(box.id)
        assert handle.resumed
        with pytest.raises(Authentication, match="traffic token") as caught:
            await text_of(other, handle, "true")
        assert not caught.value.gone
        stored = await other.connect(box.id, traffic_token=box.traffic_token)
        assert await text_of(other, stored, "echo open") == "open\n"
