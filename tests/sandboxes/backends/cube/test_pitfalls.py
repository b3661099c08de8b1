"""What Cube clusters have been seen to do to sandboxes, and what comes of it: one test each, numbered
like the upstream issues in docs/backends.md. The cluster is a fake, its sandboxes are real."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from sandboxes.backends.cube.client import CubeClient
from sandboxes.errors import (
    TimedOut,
    Unavailable,
)
from sandboxes.testing import SandboxFactory
from sandboxes.testing.base import ids_of, text_of, unique, until
from sandboxes.types import (
    ListFilter,
    OnTimeout,
    SandboxState,
    TimeoutPolicy,
)
from tests.sandboxes.backends.cube.helpers import KEEP, pause, versions
from tests.sandboxes.backends.fake_cube import FakeCube

pytestmark = pytest.mark.sandbox


async def test_01_pausing_for_ever_ends_in_a_timeout_and_loses_nothing(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    box = await sandbox(timeout=KEEP)
    cube.faults.pausing_forever = True
    for call in (pause(client, box.id), client.connect(box.id)):
        with pytest.raises(TimedOut, match="pausing") as caught:
            await asyncio.wait_for(call, 10)
        assert not caught.value.gone
    assert (await client.get(box.id)).state is SandboxState.TRANSITIONING
    assert box.id in await ids_of(client, ListFilter())


@pytest.mark.parametrize("code", ["130589", "130595"])
async def test_02_a_failed_resume_keeps_the_sandbox(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory, code: str
) -> None:
    box = await sandbox(timeout=KEEP)
    await pause(client, box.id)
    cube.faults.answer("connect", 500, f"CubeMaster returned error code {code}: resume failed")
    with pytest.raises((Unavailable, TimedOut)) as caught:
        await client.connect(box.id)
    assert not caught.value.gone
    assert (await client.connect(box.id)).resumed


async def test_03_a_resume_that_was_silently_not_done_is_done_again(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    box = await sandbox(timeout=KEEP)
    await pause(client, box.id)
    cube.faults.lost_resumes = 2
    again = await client.connect(box.id)
    assert await text_of(client, again, "echo up") == "up\n"


async def test_03_a_resume_that_never_comes_is_a_timeout(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    box = await sandbox(timeout=KEEP)
    await pause(client, box.id)
    cube.faults.lost_resumes = 10_000
    with pytest.raises(TimedOut, match="paused"):
        await asyncio.wait_for(client.connect(box.id), 15)


async def test_04_a_pause_right_after_create_is_tried_again(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    box = await sandbox(timeout=KEEP)
    text = "CubeMaster returned error code 130490: sandbox not running"
    cube.faults.answer("pause", 500, text, times=3)
    await pause(client, box.id)
    assert (await client.get(box.id)).state is SandboxState.PAUSED


async def test_05_what_would_be_killed_when_idle_is_not_reaped_while_paused(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    cube.faults.reap_killable_when_paused_after_s = 0.3
    box = await sandbox(timeout=TimeoutPolicy(timeout_s=200))
    await pause(client, box.id)
    await asyncio.sleep(1)
    assert (await client.get(box.id)).state is SandboxState.PAUSED
    await client.connect(box.id)
    end = (await client.get(box.id)).end_at
    assert end is not None, "the timeout is back"
    assert 150 < (end - datetime.now(UTC)).total_seconds() < 210


async def test_06_metadata_lost_on_pause_does_not_end_the_sandbox(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    tag = unique()
    cube.faults.forget_on_pause = True
    box = await sandbox(timeout=KEEP, metadata={"tag": tag})
    await pause(client, box.id)
    info = await client.get(box.id)
    assert (info.state, info.metadata, info.template_id) == (SandboxState.PAUSED, {}, "")
    assert info.started_at is None
    assert await ids_of(client, ListFilter(metadata={"tag": tag})) == []
    again = await client.connect(box.id, traffic_token=box.traffic_token)
    assert await text_of(client, again, "echo here") == "here\n"


@versions("0.5")
async def test_07_paused_ones_that_are_not_listed_are_still_found_by_id(
    client: CubeClient, sandbox: SandboxFactory
) -> None:
    box = await sandbox(timeout=KEEP)
    await pause(client, box.id)
    assert box.id not in await ids_of(client, ListFilter())
    assert (await client.get(box.id)).state is SandboxState.PAUSED


async def test_08_paused_ones_are_found_though_the_filter_finds_none(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    cube.faults.paused_filter_is_empty = True
    tag = {"tag": unique()}
    box, other = await sandbox(timeout=KEEP, metadata=tag), await sandbox(metadata=tag)
    await pause(client, box.id)
    states = frozenset({SandboxState.PAUSED})
    assert await ids_of(client, ListFilter(metadata=tag, states=states)) == [box.id]
    assert set(await ids_of(client, ListFilter(metadata=tag))) == {box.id, other.id}


async def test_a_state_that_lags_is_waited_for(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    box = await sandbox(timeout=KEEP)
    cube.faults.pause_lag_s = 0.6
    await pause(client, box.id)
    assert (await client.get(box.id)).state is SandboxState.PAUSED
    await pause(client, box.id)


async def test_14_a_sandbox_that_the_sweeper_pauses_again_is_woken_again(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    box = await sandbox(timeout=KEEP)
    await pause(client, box.id)
    cube.faults.swept_after_connect = 1
    again = await client.connect(box.id, timeout_s=300)
    assert await text_of(client, again, "echo up") == "up\n"


async def test_15_an_end_in_the_past_is_an_unknown_state(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    box = await sandbox(timeout=KEEP)
    cube.faults.end_at_in_the_past = True
    assert (await client.get(box.id)).state is SandboxState.UNKNOWN
    again = await client.connect(box.id)
    assert await text_of(client, again, "echo up") == "up\n"


async def test_an_unknown_state_is_not_the_end(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    box = await sandbox(timeout=KEEP)
    cube.cluster.boxes[box.id].state = "hibernating"
    assert (await client.get(box.id)).state is SandboxState.UNKNOWN
    cube.cluster.boxes[box.id].state = "running"


async def test_17_connections_are_made_anew_after_a_resume(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    box = await sandbox(timeout=KEEP)
    await text_of(client, box, "true")
    before = {call.client.port for call in cube.data_calls}
    await pause(client, box.id)
    again = await client.connect(box.id)
    cube.data_calls.clear()
    await text_of(client, again, "true")
    assert before.isdisjoint(call.client.port for call in cube.data_calls)


async def test_23_looking_and_deleting_wakes_nothing(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    box = await sandbox(timeout=KEEP)
    await pause(client, box.id)
    await client.get(box.id)
    await ids_of(client, ListFilter())
    await client.health()
    await client.delete(box.id)
    assert cube.cluster.woken == []


async def test_what_is_used_does_not_fall_asleep(
    client: CubeClient, sandbox: SandboxFactory
) -> None:
    box = await sandbox(timeout=TimeoutPolicy(timeout_s=1, on_timeout=OnTimeout.PAUSE))
    for _ in range(6):
        assert await text_of(client, box, "sleep 0.3; echo up") == "up\n"

    async def asleep() -> bool:
        return (await client.get(box.id)).state is SandboxState.PAUSED

    await until(asleep, within_s=10)
