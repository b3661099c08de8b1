"""Creates and deletes whose answers are lost, late or wrong, and lists that lie."""

from __future__ import annotations

import asyncio

import pytest

from sandboxes.backends.cube.client import CubeClient
from sandboxes.errors import (
    NotFound,
    TimedOut,
    Unavailable,
)
from sandboxes.testing import SandboxFactory
from sandboxes.testing.base import ids_of, text_of
from sandboxes.types import (
    ListFilter,
)
from tests.sandboxes.backends.cube.helpers import KEEP, pause, versions
from tests.sandboxes.backends.fake_cube import FakeCube

pytestmark = pytest.mark.sandbox


async def test_22_a_create_whose_answer_is_lost_leaves_nothing(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    bystander = await sandbox()
    cube.faults.answer("create", 408, after=True)
    with pytest.raises(TimedOut):
        await sandbox()
    assert set(cube.cluster.boxes) == {bystander.id}
    cube.faults.answer("create", 408)
    with pytest.raises(TimedOut):
        await sandbox()
    assert set(cube.cluster.boxes) == {bystander.id}


async def test_21_a_running_sandbox_is_ready_only_when_envd_answers(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    cube.faults.envd_starts_after = 3
    box = await sandbox()
    assert cube.faults.envd_starts_after == 0
    assert await text_of(client, box, "echo up") == "up\n"


async def test_21_one_that_never_answers_is_deleted_and_told(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    cube.faults.envd_starts_after = 10_000
    with pytest.raises(Unavailable, match="proxy URL"):
        await sandbox()
    assert cube.cluster.boxes == {}


async def test_a_wrong_proxy_is_told_at_once(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    cube.faults.answer("proxy", 404, body=b"<html>nginx</html>", times=5)
    with pytest.raises(Unavailable, match="no sandbox service"):
        await sandbox()
    assert cube.cluster.boxes == {}


@versions("0.5", "0.6", "0.7", "0.8")
async def test_13_a_paused_sandbox_is_deleted_on_every_version(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    box = await sandbox(timeout=KEEP)
    await pause(client, box.id)
    await client.delete(box.id)
    assert box.id not in cube.cluster.boxes
    with pytest.raises(NotFound):
        await client.delete(box.id)


async def test_13_retry_after_is_honoured(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    box = await sandbox()
    cube.faults.answer("delete", 503, "130589 resume failed", Retry_After="1")
    loop = asyncio.get_running_loop()
    began = loop.time()
    await client.delete(box.id)
    assert loop.time() - began >= 1
    assert box.id not in cube.cluster.boxes


async def test_13_a_conflict_on_a_paused_one_wakes_it_once(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    box = await sandbox(timeout=KEEP)
    await pause(client, box.id)
    cube.faults.answer("delete", 409, "sandbox is busy")
    await client.delete(box.id)
    assert cube.cluster.woken == [box.id]


async def test_a_delete_whose_answer_is_lost_is_looked_after(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    done, not_done = await sandbox(), await sandbox()
    cube.faults.answer("delete", 408, after=True)
    await client.delete(done.id)
    cube.faults.answer("delete", 408)
    with pytest.raises(TimedOut):
        await client.delete(not_done.id)
    assert not_done.id in cube.cluster.boxes


async def test_a_page_that_may_be_cut_is_asked_for_again(
    client: CubeClient,
    cube: FakeCube,
    sandbox: SandboxFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sandboxes.backends.cube.control._FIRST_LIMIT", 2)
    made = {(await sandbox()).id for _ in range(5)}
    assert set(await ids_of(client, ListFilter())) == made
    monkeypatch.setattr("sandboxes.backends.cube.control._LAST_LIMIT", 2)
    with pytest.raises(Unavailable, match="too many"):
        await ids_of(client, ListFilter())
