"""sandboxd dies and comes back: callers are told the truth meanwhile, and lose nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sandboxes import registry
from sandboxes.client import SandboxClient
from sandboxes.errors import Unavailable
from sandboxes.testing import SandboxFactory
from sandboxes.testing.base import ids_of, text_of, unique
from sandboxes.testing.pausing import counter, start_counter
from sandboxes.types import ExecRequest, ExecStarted, ListFilter, OnTimeout, TimeoutPolicy
from tests.sandboxes import daemon as daemons

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
async def client(sandboxd: daemons.Daemon) -> AsyncIterator[SandboxClient]:
    async with await registry.open_client("local", {"socket": str(sandboxd.socket)}) as client:
        yield client


async def test_a_crash_loses_nothing(
    client: SandboxClient, sandbox: SandboxFactory, sandboxd: daemons.Daemon
) -> None:
    tag = {"tag": unique()}
    keep = TimeoutPolicy(timeout_s=300, on_timeout=OnTimeout.PAUSE)
    box = await sandbox(metadata=tag, timeout=keep, env={"KEPT": "yes"})
    await start_counter(client, box)
    token, before, pid = await counter(client, box)
    end_at = (await client.get(box.id)).end_at

    async def crash_under_a_command() -> None:
        async with client.exec(box, ExecRequest(argv=("sleep", "60"))) as events:
            assert isinstance(await anext(events), ExecStarted)
            sandboxd.crash()
            async for _ in events:
                pass

    with pytest.raises(Unavailable) as caught:
        await crash_under_a_command()
    assert not caught.value.gone
    with pytest.raises(Unavailable, match="make up"):
        await client.get(box.id)

    sandboxd.run()
    assert await ids_of(client, ListFilter(metadata=tag)) == [box.id]
    info = await client.get(box.id)
    assert (info.metadata["tag"], info.end_at) == (tag["tag"], end_at)
    assert await text_of(client, box, "echo $KEPT") == "yes\n", "the old handle still opens it"
    again = await client.connect(box.id)
    assert (again.access_token, again.traffic_token) == (box.access_token, box.traffic_token)
    token_after, after, pid_after = await counter(client, again)
    assert (token_after, pid_after) == (token, pid)
    assert after > before


async def test_a_paused_sandbox_survives_a_crash(
    client: SandboxClient, sandbox: SandboxFactory, sandboxd: daemons.Daemon
) -> None:
    box = await sandbox()
    await start_counter(client, box)
    token = (await counter(client, box))[0]
    assert client.pausing is not None
    await client.pausing.pause(box.id)
    sandboxd.crash()
    sandboxd.run()
    awake = await client.connect(box.id)
    assert (await counter(client, awake))[0] == token


async def test_snapshots_survive_a_crash(
    client: SandboxClient, sandbox: SandboxFactory, sandboxd: daemons.Daemon
) -> None:
    assert client.snapshots is not None
    box = await sandbox()
    await text_of(client, box, "echo kept > /home/user/f")
    taken = await client.snapshots.create(box.id, name=f"contract-{unique()}")
    sandboxd.crash()
    sandboxd.run()
    second = await sandbox(template=taken.id)
    assert await text_of(client, second, "cat /home/user/f") == "kept\n"
    await client.delete(second.id)
    await client.snapshots.delete(taken.id)
