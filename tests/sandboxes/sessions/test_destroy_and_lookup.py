from __future__ import annotations

from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from sandboxes.errors import NotFound, Terminal, TimedOut, Unavailable
from sandboxes.sessions import Outcome, SessionKey
from sandboxes.testing.simulated import SimulatedProvider
from tests.sandboxes.sessions.world import BACKEND, KEY, Replica


async def lookup(replica: Replica, backend: str = BACKEND) -> object:
    return await replica.manager.lookup(key=KEY, client=replica.client, backend=backend)


async def test_destroy_deletes_sandbox_and_binding_and_may_be_repeated(
    replica: Replica, provider: SimulatedProvider, redis: Redis
) -> None:
    await replica.resolve()
    await replica.mark_stale()
    assert await replica.destroy()
    assert provider.live() == []
    assert await redis.keys("*:binding") + await redis.keys("*:token") == []
    assert await redis.keys("*:stale") == []
    assert not await replica.destroy()
    assert replica.history()[-1] == ("destroyed", "requested")


@pytest.mark.parametrize("gone", [NotFound, Terminal])
async def test_destroy_of_a_sandbox_that_is_gone_already_is_success(
    replica: Replica, provider: SimulatedProvider, gone: Callable[[str], Exception]
) -> None:
    await replica.resolve()
    provider.fail_next("delete", gone("gone"))
    assert await replica.destroy()
    assert (await replica.manager.state(key=KEY)).stored is None


@pytest.mark.parametrize("phase", ["before", "after"])
async def test_a_failed_destroy_keeps_the_binding_for_the_next_try(
    replica: Replica, provider: SimulatedProvider, phase: str
) -> None:
    await replica.resolve()
    provider.fail_next("delete", TimedOut("no answer"), phase=phase)
    with pytest.raises(TimedOut):
        await replica.destroy()
    assert (await replica.manager.state(key=KEY)).stored is not None
    assert await replica.destroy()
    assert provider.live() == []


async def test_destroy_finds_a_sandbox_whose_binding_is_lost(
    replica: Replica, provider: SimulatedProvider, redis: Redis
) -> None:
    await replica.resolve()
    other = await replica.resolve(SessionKey("tenant-1", "space-1", "chat-2"))
    await redis.flushall()
    assert await replica.destroy()
    assert [s.id for s in provider.live()] == [other.sandbox.id]


async def test_destroy_through_another_backend_only_unbinds(
    replica: Replica, provider: SimulatedProvider
) -> None:
    await replica.resolve()
    elsewhere = SimulatedProvider().client()
    assert await replica.manager.destroy(key=KEY, client=elsewhere, backend="backend-2")
    assert len(provider.live()) == 1
    assert (await replica.manager.state(key=KEY)).stored is None


async def test_lookup_never_provisions(replica: Replica, provider: SimulatedProvider) -> None:
    assert await lookup(replica) is None
    assert provider.calls == {}


async def test_lookup_connects_and_wakes(replica: Replica, provider: SimulatedProvider) -> None:
    provider.returns_tokens = False
    created = await replica.resolve()
    await replica.client.pausing.pause(created.sandbox.id)
    found = await lookup(replica)
    assert found.id == created.sandbox.id
    assert found.traffic_token == created.sandbox.traffic_token


async def test_lookup_of_a_sandbox_that_is_gone_is_none_and_changes_nothing(
    replica: Replica, provider: SimulatedProvider
) -> None:
    created = await replica.resolve()
    provider.vanish(created.sandbox.id)
    assert await lookup(replica) is None
    assert (await replica.manager.state(key=KEY)).stored is not None
    assert provider.calls["create"] == 1
    assert (await replica.resolve()).outcome is Outcome.REBUILT


async def test_lookup_through_another_backend_is_none(replica: Replica) -> None:
    await replica.resolve()
    assert await lookup(replica, backend="backend-2") is None


async def test_lookup_passes_other_errors_on(replica: Replica, provider: SimulatedProvider) -> None:
    await replica.resolve()
    provider.fail_next("connect", Unavailable("down"))
    with pytest.raises(Unavailable):
        await lookup(replica)


async def test_the_bound_sessions_of_a_space_can_be_counted(replica: Replica) -> None:
    for number in range(3):
        await replica.resolve(SessionKey("tenant-1", "space-1", f"chat-{number}"))
    await replica.resolve(SessionKey("tenant-1", "space-2", "chat"))

    async def count(**where: str) -> int:
        return len([key async for key in replica.manager.bound_sessions(**where)])

    assert await count(tenant="tenant-1", space="space-1") == 3
    assert await count(tenant="tenant-1") == 4
    assert await count(tenant="tenant-2") == 0
