"""One holder among all processes, and only while it can prove that it is alive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from sandboxes.errors import Conflict
from sandboxes.sessions import LockLost, LockTiming, Outcome, SessionBusy
from sandboxes.testing.simulated import SimulatedProvider
from tests.sandboxes.sessions.world import KEY, Replica, until

NewReplica = Callable[..., Replica]
QUICK = LockTiming(lease_s=0.3, renew_s=0.05, retry_s=(0.001, 0.005))


class Gate:
    """Holds calls of one contract method until it is opened."""

    def __init__(self, provider: SimulatedProvider, op: str, phase: str = "before") -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()
        self.wanted = (op, phase)
        provider.intercept = self

    async def __call__(self, op: str, phase: str, sandbox_id: str) -> None:
        if (op, phase) == self.wanted:
            self.reached.set()
            await self.open.wait()


def test_a_lease_that_is_renewed_too_late_is_refused() -> None:
    with pytest.raises(ValueError, match="renew_s"):
        LockTiming(lease_s=10, renew_s=10)


async def test_the_lock_has_its_lease_and_is_gone_afterwards(
    replica: Replica, redis: Redis
) -> None:
    lock = replica.manager.names.of(KEY).lock
    async with replica.manager.exclusive(key=KEY):
        assert 59_000 < await redis.pttl(lock) <= 60_000
    assert not await redis.exists(lock)


async def test_a_second_caller_waits_its_turn_and_then_says_busy(
    new_replica: NewReplica,
) -> None:
    one, other = new_replica(), new_replica()
    async with one.manager.exclusive(key=KEY):
        for replica in (one, other):
            with pytest.raises(SessionBusy, match="try again") as caught:
                await replica.resolve(wait_s=0.03)
            assert caught.value.retryable
            assert caught.value.retry_after_s
    assert (await other.resolve(wait_s=0.5)).outcome is Outcome.CREATED


async def test_a_long_holder_renews_past_its_lease(
    new_replica: NewReplica, provider: SimulatedProvider, redis: Redis
) -> None:
    replica = new_replica(timing=QUICK)
    gate = Gate(provider, "create")
    task = asyncio.create_task(replica.resolve())
    await gate.reached.wait()
    with pytest.raises(SessionBusy):
        await new_replica(timing=QUICK).resolve(wait_s=0.7)
    gate.open.set()
    assert (await task).outcome is Outcome.CREATED


@pytest.mark.parametrize("taken", [False, True])
async def test_losing_the_lock_cancels_the_work(
    new_replica: NewReplica, provider: SimulatedProvider, redis: Redis, taken: bool
) -> None:
    replica = new_replica(timing=QUICK)
    gate = Gate(provider, "create")
    task = asyncio.create_task(replica.resolve())
    await gate.reached.wait()
    lock = replica.manager.names.of(KEY).lock
    await (redis.set(lock, "another") if taken else redis.delete(lock))
    with pytest.raises(LockLost, match="try again") as caught:
        await task
    assert isinstance(caught.value, Conflict)
    assert not task.cancelled()
    assert task.cancelling() == 0, "the cancellation was ours and is used up"
    assert provider.created == []
    assert await redis.get(lock) == (b"another" if taken else None), "not ours to release"


async def test_the_work_of_a_lost_lock_is_not_cleaned_up_because_another_may_own_it(
    new_replica: NewReplica, provider: SimulatedProvider, redis: Redis
) -> None:
    replica = new_replica(timing=QUICK)
    gate = Gate(provider, "create", "after")
    task = asyncio.create_task(replica.resolve())
    await gate.reached.wait()
    await redis.delete(replica.manager.names.of(KEY).lock)
    with pytest.raises(LockLost):
        await task
    provider.intercept = None
    (existing,) = provider.live()
    resolved = await new_replica().resolve()
    assert resolved.outcome is Outcome.CLAIMED
    assert resolved.sandbox.id == existing.id


async def test_cleanup_stops_when_the_lock_is_lost(
    new_replica: NewReplica, provider: SimulatedProvider, redis: Redis
) -> None:
    replica = new_replica(timing=QUICK)
    gate = Gate(provider, "delete")
    calls = 0

    async def deleted_meanwhile() -> bool:
        nonlocal calls
        calls += 1
        return calls == 1

    replica.space.session_exists = deleted_meanwhile
    task = asyncio.create_task(replica.resolve())
    await gate.reached.wait()
    await redis.delete(replica.manager.names.of(KEY).lock)
    with pytest.raises(LockLost):
        await task
    assert len(provider.live()) == 1


async def test_cleanup_has_a_budget(new_replica: NewReplica, provider: SimulatedProvider) -> None:
    timing = LockTiming(lease_s=60, renew_s=20, retry_s=(0.001, 0.005), cleanup_s=0.05)
    replica = new_replica(timing=timing)
    gate = Gate(provider, "delete")
    calls = 0

    async def broken_second_time() -> bool:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise ConnectionError("the database is down")
        return True

    replica.space.session_exists = broken_second_time
    with pytest.raises(ConnectionError) as caught:
        await replica.resolve()
    assert gate.reached.is_set()
    assert "could not be deleted" in caught.value.__notes__[0]


async def test_a_late_write_of_a_holder_that_lost_the_lock_changes_nothing(
    new_replica: NewReplica, provider: SimulatedProvider, redis: Redis
) -> None:
    """The stalled process wakes up after its lease, before it notices: its bind is refused."""
    stalled = new_replica()
    gate = Gate(provider, "create", "after")
    task = asyncio.create_task(stalled.resolve())
    await gate.reached.wait()
    await redis.delete(stalled.manager.names.of(KEY).lock)
    provider.intercept = None
    successor = await new_replica().resolve()
    gate.open.set()
    with pytest.raises(LockLost):
        await task
    snapshot = await stalled.manager.state(key=KEY)
    assert snapshot.binding(KEY).sandbox_id == successor.sandbox.id
    assert [s.id for s in provider.live()] == [successor.sandbox.id]


async def test_the_callers_own_cancellation_stays_a_cancellation(
    new_replica: NewReplica, provider: SimulatedProvider
) -> None:
    gate = Gate(provider, "create")
    task = asyncio.create_task(new_replica().resolve())
    await gate.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_timeout_of_the_caller_stays_a_timeout(
    new_replica: NewReplica, provider: SimulatedProvider
) -> None:
    replica = new_replica()
    Gate(provider, "create")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await replica.resolve()
    provider.intercept = None
    assert (await replica.resolve()).outcome is Outcome.CREATED


async def test_a_lock_of_a_dead_process_lapses(new_replica: NewReplica, redis: Redis) -> None:
    await redis.set(new_replica().manager.names.of(KEY).lock, "dead", px=80)
    assert (await new_replica().resolve(wait_s=5)).outcome is Outcome.CREATED


async def test_the_lock_is_retaken_by_a_repeated_request(replica: Replica) -> None:
    locks = replica.manager._locks
    await replica.manager.begin_turn(key=KEY)
    assert await locks.acquire(KEY, owner="me", take_ticket=True) is not None
    assert await locks.acquire(KEY, owner="me", take_ticket=True) is not None
    assert await locks.acquire(KEY, owner="other", take_ticket=True) is None


async def test_waiters_leave_no_lock_objects_behind(replica: Replica) -> None:
    await asyncio.gather(*(replica.resolve() for _ in range(5)))
    import gc

    gc.collect()
    assert len(replica.manager._locks._local) == 0


async def test_background_work_ends_with_the_manager(replica: Replica) -> None:
    replica.manager._locks.give_back_later(KEY, "nobody")
    await until(lambda: len(replica.manager._locks._background) == 1)
    await replica.manager.aclose()
    assert not replica.manager._locks._background
