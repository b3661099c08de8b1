"""Redis killed, frozen, flushed: nothing is created twice, nothing is lost, callers hear 503."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from sandboxes.errors import Unavailable
from sandboxes.sessions import LockTiming, Outcome, SessionKey
from sandboxes.testing.simulated import SimulatedProvider
from tests.sandboxes.sessions.world import BACKEND, KEY, RedisServer, Replica, Space, until

NewReplica = Callable[..., Replica]


@pytest.fixture
async def fragile_redis(own_redis_server: RedisServer) -> AsyncIterator[Redis]:
    client = Redis(unix_socket_path=own_redis_server.socket, retry=Retry(NoBackoff(), 0))
    yield client
    await client.aclose()


@pytest.fixture
async def new_fragile(
    fragile_redis: Redis, provider: SimulatedProvider, space: Space
) -> AsyncIterator[NewReplica]:
    made: list[Replica] = []

    def new() -> Replica:
        made.append(Replica(fragile_redis, provider, space, redis_timeout_s=0.5))
        return made[-1]

    yield new
    for replica in made:
        await replica.manager.aclose()


async def everything_is_unavailable(replica: Replica) -> None:
    manager = replica.manager
    calls = [
        replica.resolve(),
        replica.destroy(),
        replica.mark_stale(),
        manager.lookup(key=KEY, client=replica.client, backend=BACKEND),
        manager.state(key=KEY),
        manager.begin_turn(key=KEY),
        manager.end_turn(key=KEY),
        manager.consume_turn(key=KEY),
        manager.turn_state(key=KEY),
        manager.bindings(keys=[KEY]),
        manager.store_since(now=0.0),
    ]
    for call in calls:
        with pytest.raises(Unavailable, match="try again") as caught:
            await call
        assert caught.value.retry_after_s
        assert caught.value.__cause__ is not None


async def test_killed_and_restarted(
    new_fragile: NewReplica, own_redis_server: RedisServer, provider: SimulatedProvider
) -> None:
    replica = new_fragile()
    await replica.manager.begin_turn(key=KEY)
    first = await replica.resolve()
    own_redis_server.kill()
    calls = dict(provider.calls)
    await everything_is_unavailable(replica)
    assert dict(provider.calls) == calls, "the backend is not touched while Redis is away"
    own_redis_server.start()
    again = await replica.resolve()
    assert again.outcome is Outcome.CONNECTED
    assert again.sandbox.id == first.sandbox.id
    assert (await replica.manager.turn_state(key=KEY)).refs == 1


async def test_frozen(
    new_fragile: NewReplica, own_redis_server: RedisServer, provider: SimulatedProvider
) -> None:
    replica = new_fragile()
    first = await replica.resolve()
    own_redis_server.signal(signal.SIGSTOP)
    await everything_is_unavailable(replica)
    own_redis_server.signal(signal.SIGCONT)
    # Requests that were frozen on their way may still take the lock: it is given back by itself,
    # long before its lease of a minute.
    again = await replica.resolve(wait_s=10)
    assert again.sandbox.id == first.sandbox.id
    assert len(provider.created) == 1


async def test_flushed_bindings_come_back_by_claim(
    new_fragile: NewReplica, fragile_redis: Redis, provider: SimulatedProvider
) -> None:
    replicas = [new_fragile() for _ in range(3)]
    keys = [SessionKey("tenant-1", "space-1", f"chat-{i}") for i in range(20)]
    before = await asyncio.gather(*(replicas[0].resolve(key) for key in keys))
    await fragile_redis.flushall()
    after = await asyncio.gather(*(r.resolve(key) for r in replicas for key in keys))
    assert [r.sandbox.id for r in after] == [r.sandbox.id for r in before] * 3
    assert [r.outcome for r in after].count(Outcome.CLAIMED) == 20
    assert provider.calls["create"] == 20


async def test_an_emptied_script_cache_is_refilled(
    new_fragile: NewReplica, fragile_redis: Redis
) -> None:
    replica = new_fragile()
    first = await replica.resolve()
    await fragile_redis.script_flush()
    assert (await replica.resolve()).sandbox.id == first.sandbox.id


async def test_redis_dying_while_a_sandbox_is_made_leaves_it_to_be_claimed(
    new_fragile: NewReplica, own_redis_server: RedisServer, provider: SimulatedProvider
) -> None:
    replica = new_fragile()

    async def die(op: str, phase: str, sandbox_id: str) -> None:
        if (op, phase) == ("create", "after"):
            own_redis_server.kill()

    provider.intercept = die
    with pytest.raises(Unavailable):
        await replica.resolve()
    provider.intercept = None
    (survivor,) = provider.live()
    own_redis_server.start()
    # The lock of the failed call came back with the log; it is given back in the background.
    resolved = await replica.resolve(wait_s=10)
    assert resolved.outcome is Outcome.CLAIMED
    assert resolved.sandbox.id == survivor.id
    assert provider.calls["create"] == 1


async def test_redis_dying_after_the_work_is_done_does_not_undo_it(
    new_fragile: NewReplica, own_redis_server: RedisServer, provider: SimulatedProvider
) -> None:
    replica = new_fragile()
    first = await replica.resolve()

    async def die(op: str, phase: str, sandbox_id: str) -> None:
        if (op, phase) == ("connect", "after"):
            own_redis_server.kill()

    provider.intercept = die
    assert (await replica.resolve()).sandbox.id == first.sandbox.id
    provider.intercept = None
    own_redis_server.start()
    assert (await replica.resolve(wait_s=10)).sandbox.id == first.sandbox.id


async def test_a_read_only_redis_fails_closed(
    new_fragile: NewReplica, fragile_redis: Redis, provider: SimulatedProvider
) -> None:
    await fragile_redis.replicaof("localhost", "1")
    with pytest.raises(Unavailable):
        await new_fragile().resolve()
    assert provider.calls == {}


async def test_a_binding_of_the_wrong_type_fails_closed_and_leaves_no_lock(
    new_fragile: NewReplica, fragile_redis: Redis, provider: SimulatedProvider
) -> None:
    replica = new_fragile()
    keys = replica.manager.names.of(KEY)
    await fragile_redis.lpush(keys.binding, "x")
    with pytest.raises(Unavailable):
        await replica.resolve()
    assert provider.calls == {}
    assert not await fragile_redis.exists(keys.lock)


async def test_a_short_outage_does_not_cost_a_holder_its_lock(
    own_redis_server: RedisServer, fragile_redis: Redis, provider: SimulatedProvider, space: Space
) -> None:
    replica = Replica(
        fragile_redis,
        provider,
        space,
        timing=LockTiming(lease_s=8, renew_s=0.05, retry_s=(0.001, 0.005)),
        redis_timeout_s=0.5,
    )
    making, go = asyncio.Event(), asyncio.Event()

    async def slow(op: str, phase: str, sandbox_id: str) -> None:
        if (op, phase) == ("create", "before"):
            making.set()
            await go.wait()

    provider.intercept = slow
    task = asyncio.create_task(replica.resolve())
    await making.wait()
    own_redis_server.kill()
    own_redis_server.start()
    lock = replica.manager.names.of(KEY).lock

    async def renewed() -> bool:
        try:
            return bool(await fragile_redis.pttl(lock) > 7_900)
        except RedisError:
            return False

    await until(renewed)
    go.set()
    assert (await task).outcome is Outcome.CREATED
    await replica.manager.aclose()
