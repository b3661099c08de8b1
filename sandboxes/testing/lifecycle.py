"""Create, connect, get, list, delete."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sandboxes.client import SandboxClient
from sandboxes.errors import NotFound
from sandboxes.testing.base import (
    Contract,
    SandboxFactory,
    files_of,
    ids_of,
    needs,
    text_of,
    unique,
)
from sandboxes.types import ListFilter, Sandbox, SandboxState, TimeoutPolicy

__all__ = ["CapabilityContract", "LifecycleContract", "MetadataContract"]


class CapabilityContract(Contract):
    async def test_health_accepts_us(self, client: SandboxClient) -> None:
        await client.health()

    async def test_the_provider_has_a_name(self, client: SandboxClient) -> None:
        assert client.provider

    async def test_accessors_agree_with_capabilities(self, client: SandboxClient) -> None:
        able = client.capabilities
        assert (client.files is not None) is able.files
        assert (client.snapshots is not None) is able.snapshots
        assert (client.templates is not None) is able.templates
        assert (client.pausing is not None) is able.pause
        assert (client.network is not None) is able.network_update
        assert (client.terminal is not None) is able.terminal

    async def test_notes_are_about_capabilities(self, client: SandboxClient) -> None:
        known = set(type(client.capabilities).__dataclass_fields__) - {"notes"}
        assert set(client.capabilities.notes) <= known


class LifecycleContract(Contract):
    async def test_a_new_sandbox_runs_commands(self, client: SandboxClient, box: Sandbox) -> None:
        assert await text_of(client, box, "echo hello") == "hello\n"

    async def test_get_tells_what_was_created(
        self, client: SandboxClient, sandbox: SandboxFactory
    ) -> None:
        tag = unique()
        before = datetime.now(UTC)
        made = await sandbox(metadata={"tag": tag}, timeout=TimeoutPolicy(timeout_s=120))
        info = await client.get(made.id)
        assert info.id == made.id
        assert info.template_id == made.template_id
        assert info.state is SandboxState.RUNNING
        assert info.metadata["tag"] == tag
        assert info.started_at is not None
        assert abs(info.started_at - before) < timedelta(seconds=60)
        assert info.end_at is not None
        assert timedelta(seconds=90) < info.end_at - before < timedelta(seconds=180)

    async def test_connect_reaches_the_same_sandbox(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        await text_of(client, box, "echo kept > /tmp/mark")
        again = await client.connect(box.id)
        assert again.id == box.id
        assert await text_of(client, again, "cat /tmp/mark") == "kept\n"

    async def test_connect_is_idempotent(self, client: SandboxClient, box: Sandbox) -> None:
        for _ in range(3):
            assert (await client.connect(box.id)).id == box.id

    async def test_connect_keeps_the_traffic_token(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        again = await client.connect(box.id, traffic_token=box.traffic_token)
        assert again.traffic_token == box.traffic_token

    @needs("idle_timeout")
    async def test_connect_extends_and_never_shortens(
        self, client: SandboxClient, sandbox: SandboxFactory
    ) -> None:
        made = await sandbox(timeout=TimeoutPolicy(timeout_s=100))
        first = (await client.get(made.id)).end_at
        await client.connect(made.id, timeout_s=900)
        longer = (await client.get(made.id)).end_at
        await client.connect(made.id, timeout_s=5)
        after = (await client.get(made.id)).end_at
        assert first is not None
        assert longer is not None
        assert after is not None
        assert longer - first > timedelta(seconds=600)
        assert after >= longer - timedelta(seconds=2)

    async def test_sandboxes_are_apart(
        self, client: SandboxClient, sandbox: SandboxFactory
    ) -> None:
        one, two = await sandbox(), await sandbox()
        await text_of(client, one, "echo secret > /tmp/only-here; (sleep 300 &) >/dev/null 2>&1")
        assert await text_of(client, two, "ls /tmp/only-here 2>/dev/null | wc -l") == "0\n"
        assert await text_of(client, two, "pgrep -c sleep || true") == "0\n"

    async def test_delete_ends_it(self, client: SandboxClient, box: Sandbox) -> None:
        await client.delete(box.id)
        with pytest.raises(NotFound):
            await client.get(box.id)
        with pytest.raises(NotFound):
            await client.connect(box.id)
        assert box.id not in await ids_of(client, ListFilter())

    async def test_delete_twice_is_not_found(self, client: SandboxClient, box: Sandbox) -> None:
        await client.delete(box.id)
        with pytest.raises(NotFound):
            await client.delete(box.id)

    @needs("files")
    async def test_a_new_sandbox_starts_from_the_template_alone(
        self, client: SandboxClient, sandbox: SandboxFactory
    ) -> None:
        first = await sandbox()
        await files_of(client).write(first, "/home/user/trace", b"x")
        await client.delete(first.id)
        second = await sandbox()
        with pytest.raises(NotFound):
            await files_of(client).stat(second, "/home/user/trace")


class MetadataContract(Contract):
    async def test_list_matches_all_pairs(
        self, client: SandboxClient, sandbox: SandboxFactory
    ) -> None:
        space, one, two = unique(), unique(), unique()
        first = await sandbox(metadata={"space": space, "session": one})
        second = await sandbox(metadata={"space": space, "session": two})
        await sandbox(metadata={"space": unique(), "session": one})
        in_space = await ids_of(client, ListFilter(metadata={"space": space}))
        assert sorted(in_space) == sorted([first.id, second.id])
        both = await ids_of(client, ListFilter(metadata={"space": space, "session": two}))
        assert both == [second.id]
        assert await ids_of(client, ListFilter(metadata={"space": space, "session": "no"})) == []

    async def test_values_of_any_characters_are_kept_and_matched(
        self, client: SandboxClient, sandbox: SandboxFactory
    ) -> None:
        odd = {
            "a b": "x/y & z=1",
            "k%20": "100%25",
            "空间": "图表 é?#",
            "plus": "a+b",
            "tag": unique(),
        }
        made = await sandbox(metadata=odd)
        info = await client.get(made.id)
        assert {name: info.metadata.get(name) for name in odd} == odd
        assert await ids_of(
            client, ListFilter(metadata={"a b": odd["a b"], "tag": odd["tag"]})
        ) == [made.id]
        assert await ids_of(client, ListFilter(metadata=odd)) == [made.id]

    async def test_list_by_state(self, client: SandboxClient, sandbox: SandboxFactory) -> None:
        tag = {"tag": unique()}
        made = await sandbox(metadata=tag)
        running = ListFilter(metadata=tag, states=frozenset({SandboxState.RUNNING}))
        paused = ListFilter(metadata=tag, states=frozenset({SandboxState.PAUSED}))
        assert await ids_of(client, running) == [made.id]
        assert await ids_of(client, paused) == []

    @needs("pause")
    async def test_list_has_paused_ones_too(
        self, client: SandboxClient, sandbox: SandboxFactory
    ) -> None:
        tag = {"tag": unique()}
        made = await sandbox(metadata=tag)
        assert client.pausing is not None
        await client.pausing.pause(made.id)
        infos = [info async for info in client.list(ListFilter(metadata=tag))]
        assert [(info.id, info.state) for info in infos] == [(made.id, SandboxState.PAUSED)]
        assert infos[0].metadata["tag"] == tag["tag"]
