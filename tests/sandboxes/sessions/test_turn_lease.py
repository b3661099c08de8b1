"""Within one turn the sandbox never changes; between turns a stale one is rebuilt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from sandboxes.errors import TimedOut, Unavailable
from sandboxes.sessions import Outcome, Rollout, SessionKey
from sandboxes.testing.simulated import SimulatedProvider
from tests.sandboxes.sessions.world import KEY, Replica, Space, make_plan, until

NewReplica = Callable[..., Replica]


async def test_no_turn_is_no_lease(replica: Replica) -> None:
    assert not (await replica.manager.turn_state(key=KEY)).active
    assert not (await replica.manager.end_turn(key=KEY)).active
    assert not (await replica.manager.consume_turn(key=KEY)).active
    assert not (await replica.manager.turn_state(key=KEY)).active, "consume never creates"


async def test_the_first_reference_issues_the_ticket_and_later_ones_do_not(
    replica: Replica,
) -> None:
    manager = replica.manager
    first = await manager.begin_turn(key=KEY)
    assert (first.refs, first.ticket) == (1, True)
    await manager.consume_turn(key=KEY)
    second = await manager.begin_turn(key=KEY)
    assert (second.refs, second.ticket) == (2, False)
    assert (await manager.end_turn(key=KEY)).refs == 1
    assert not (await manager.end_turn(key=KEY)).active
    assert (await manager.begin_turn(key=KEY)).ticket


async def test_a_lost_answer_does_not_count_a_turn_twice(replica: Replica, redis: Redis) -> None:
    lease = replica.manager._lease
    keys = replica.manager.names.of(KEY)
    for _ in range(2):  # as a client does that retries after a broken connection
        state = await lease._run("turn_begin", keys, ["call-1", lease.ttl_ms])
    assert state.refs == 1
    await replica.manager.begin_turn(key=KEY)
    for _ in range(2):
        state = await lease._run("turn_end", keys, ["call-2"])
    assert state.refs == 1


async def test_the_lease_lapses_by_itself_and_every_touch_prolongs_it(
    new_replica: NewReplica, redis: Redis
) -> None:
    replica = new_replica(turn_ttl_s=1800)
    turn = replica.manager.names.of(KEY).turn
    await replica.manager.begin_turn(key=KEY)
    assert 1790 < await redis.ttl(turn) <= 1800
    for touch in (replica.resolve, lambda: replica.manager.consume_turn(key=KEY)):
        await redis.expire(turn, 5)
        await touch()
        assert 1790 < await redis.ttl(turn) <= 1800
    await redis.expire(turn, 5)
    await replica.manager.turn_state(key=KEY)
    assert await redis.ttl(turn) <= 5, "looking is no touch"


async def test_a_leaked_turn_stops_protecting_after_its_time(
    new_replica: NewReplica, redis: Redis
) -> None:
    replica = new_replica(turn_ttl_s=0.05)
    first = await replica.resolve()
    await replica.manager.begin_turn(key=KEY)
    await replica.resolve()
    await replica.mark_stale()

    async def lapsed() -> bool:
        return not (await replica.manager.turn_state(key=KEY)).active

    await until(lapsed)
    assert (await replica.resolve()).sandbox.id != first.sandbox.id


async def test_stale_without_a_turn_is_rebuilt_at_once(
    replica: Replica, provider: SimulatedProvider, space: Space
) -> None:
    first = await replica.resolve()
    space.current = make_plan(release="8")
    assert (await replica.mark_stale()).marked == 1
    second = await replica.resolve()
    assert second.outcome is Outcome.REBUILT
    assert [s.id for s in provider.live()] == [second.sandbox.id]
    assert provider.live()[0].request.template == "release-8"
    assert replica.history()[1:] == [("destroyed", "stale"), ("rebuilt", "stale")]
    assert replica.events[1].detail == "release 8"
    assert first.sandbox.id != second.sandbox.id
    assert not (await replica.resolve()).stale


async def test_the_first_resolve_of_a_turn_may_rebuild(replica: Replica) -> None:
    await replica.resolve()
    await replica.mark_stale()
    await replica.manager.begin_turn(key=KEY)
    assert (await replica.resolve()).outcome is Outcome.REBUILT


async def test_a_mark_that_lands_later_in_the_turn_waits_for_the_next(replica: Replica) -> None:
    await replica.manager.begin_turn(key=KEY)
    first = await replica.resolve()
    await replica.mark_stale()
    for _ in range(3):
        again = await replica.resolve()
        assert again.sandbox.id == first.sandbox.id
        assert again.stale
    await replica.manager.end_turn(key=KEY)
    await replica.manager.begin_turn(key=KEY)
    assert (await replica.resolve()).outcome is Outcome.REBUILT


async def test_the_ticket_is_used_up_though_nothing_was_stale(replica: Replica) -> None:
    first = await replica.resolve()
    await replica.manager.begin_turn(key=KEY)
    await replica.resolve()
    assert not (await replica.manager.turn_state(key=KEY)).ticket
    await replica.mark_stale()
    assert (await replica.resolve()).sandbox.id == first.sandbox.id


async def test_a_second_turn_beside_a_first_cannot_rebuild(replica: Replica) -> None:
    manager = replica.manager
    await manager.begin_turn(key=KEY)
    first = await replica.resolve()
    await replica.mark_stale()
    await manager.begin_turn(key=KEY)
    assert (await replica.resolve()).sandbox.id == first.sandbox.id
    await manager.end_turn(key=KEY)
    assert (await replica.resolve()).sandbox.id == first.sandbox.id
    await manager.end_turn(key=KEY)
    assert (await replica.resolve()).outcome is Outcome.REBUILT


async def test_a_damaged_lease_counts_as_a_turn_in_flight(replica: Replica, redis: Redis) -> None:
    first = await replica.resolve()
    await replica.mark_stale()
    turn = replica.manager.names.of(KEY).turn
    await redis.set(turn, "not a hash")
    assert not (await replica.manager.turn_state(key=KEY)).readable
    again = await replica.resolve()
    assert again.sandbox.id == first.sandbox.id
    assert again.stale
    await redis.delete(turn)
    await redis.hset(turn, mapping={"refs": "many", "rebuild": "1"})
    assert (await replica.resolve()).sandbox.id == first.sandbox.id


@pytest.mark.parametrize("phase", ["before", "after"])
async def test_a_rebuild_that_failed_keeps_binding_and_ticket(
    replica: Replica, provider: SimulatedProvider, phase: str
) -> None:
    first = await replica.resolve()
    await replica.mark_stale()
    await replica.manager.begin_turn(key=KEY)
    provider.fail_next("delete", TimedOut("no answer"), phase=phase)
    with pytest.raises(TimedOut):
        await replica.resolve()
    snapshot = await replica.manager.state(key=KEY)
    assert snapshot.binding(KEY).sandbox_id == first.sandbox.id
    assert snapshot.turn.ticket
    resolved = await replica.resolve()
    assert resolved.outcome is Outcome.REBUILT
    assert [s.id for s in provider.live()] == [resolved.sandbox.id]
    assert not (await replica.manager.turn_state(key=KEY)).ticket


async def test_a_resolve_that_failed_otherwise_has_used_the_ticket(
    replica: Replica, provider: SimulatedProvider
) -> None:
    first = await replica.resolve()
    await replica.manager.begin_turn(key=KEY)
    provider.fail_next("connect", Unavailable("down"))
    with pytest.raises(Unavailable):
        await replica.resolve()
    await replica.mark_stale()
    assert (await replica.resolve()).sandbox.id == first.sandbox.id


async def test_a_stale_duplicate_is_not_adopted_in_place_of_a_rebuild(
    replica: Replica, provider: SimulatedProvider, space: Space
) -> None:
    first = await replica.resolve()
    provider.start(provider.sandboxes[first.sandbox.id].request)
    space.current = make_plan(release="8")
    await replica.mark_stale()
    assert (await replica.resolve()).outcome is Outcome.REBUILT
    assert [s.request.template for s in provider.live()] == ["release-8"]


class TestMarkStale:
    async def many(self, replica: Replica, count: int) -> list[SessionKey]:
        keys = [SessionKey(KEY.tenant, KEY.space, f"chat-{i}") for i in range(count)]
        await asyncio.gather(*(replica.resolve(key) for key in keys))
        return keys

    async def test_it_marks_this_space_and_no_other(self, replica: Replica) -> None:
        await self.many(replica, 20)
        others = [
            SessionKey("tenant-1", "space-10", "chat"),
            SessionKey("tenant-1", "space-1*", "chat"),
            SessionKey("tenant-2", "space-1", "chat"),
            SessionKey("tenant-1:space-1", "x", "chat"),
        ]
        for key in others:
            await replica.resolve(key)
        report = await replica.mark_stale()
        assert (report.marked, report.already, report.failures) == (20, 0, [])
        for key in others:
            assert (await replica.manager.state(key=key)).stale is None
        assert (await replica.mark_stale()).already == 20

    async def test_a_pattern_in_an_id_matches_only_itself(self, replica: Replica) -> None:
        await self.many(replica, 3)
        odd = SessionKey(KEY.tenant, "space-[1]*?", "chat")
        await replica.resolve(odd)
        report = await replica.manager.mark_stale(tenant=odd.tenant, space=odd.space, why="policy")
        assert report.marked == 1

    async def test_rollout_to_new_sessions_leaves_the_running_ones(self, replica: Replica) -> None:
        await self.many(replica, 2)
        assert (await replica.mark_stale(rollout=Rollout.NEW_SESSION)).marked == 0
        assert (await replica.mark_stale(rollout=Rollout.NEXT_TURN)).marked == 2

    async def test_those_that_are_fresh_already_are_left(
        self, replica: Replica, space: Space
    ) -> None:
        await self.many(replica, 3)
        space.current = make_plan(release="8")
        await replica.resolve(SessionKey(KEY.tenant, KEY.space, "newest"))
        report = await replica.mark_stale(fresh=lambda binding: binding.release == "8")
        assert (report.marked, report.fresh) == (3, 1)

    async def test_a_busy_session_is_marked_without_waiting_for_it(
        self, replica: Replica, provider: SimulatedProvider
    ) -> None:
        await self.many(replica, 2)
        busy, go = asyncio.Event(), asyncio.Event()

        async def block(op: str, phase: str, sandbox_id: str) -> None:
            busy.set()
            await go.wait()

        provider.intercept = block
        task = asyncio.create_task(replica.resolve(SessionKey(KEY.tenant, KEY.space, "chat-0")))
        await busy.wait()
        async with asyncio.timeout(1):
            assert (await replica.mark_stale()).marked == 2
        go.set()
        await task

    async def test_a_session_that_fails_is_reported_and_the_rest_go_on(
        self, replica: Replica, redis: Redis
    ) -> None:
        keys = await self.many(replica, 5)
        names = replica.manager.names
        await redis.set(names.of(keys[0]).binding, "damaged")
        await redis.lpush(names.of(keys[1]).stale, "wrong type")
        report = await replica.mark_stale()
        assert report.marked + report.already == 4
        assert [failure.session for failure in report.failures] == ["chat-0"]
        assert "damaged" in report.failures[0].message

    async def test_the_wait_for_one_session_is_bounded(
        self, replica: Replica, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        keys = await self.many(replica, 3)
        slow = replica.manager.names.of(keys[1]).binding
        run = replica.manager._scripts.run

        async def stuck(name: str, keys: list[str], args: list[str]) -> object:
            if name == "mark_stale" and keys[0] == slow:
                await asyncio.Event().wait()
            return await run(name, keys, args)

        monkeypatch.setattr(replica.manager._scripts, "run", stuck)
        report = await replica.mark_stale(wait_s=0.05)
        assert report.marked == 2
        assert report.failures[0].session == "chat-1"
        assert "0.05 s" in report.failures[0].message
