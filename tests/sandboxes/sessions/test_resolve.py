"""From a session to its sandbox: bound, new, claimed, gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from sandboxes.errors import (
    Authentication,
    Capacity,
    Conflict,
    Internal,
    InvalidRequest,
    NotFound,
    SandboxError,
    Terminal,
    TimedOut,
    Unavailable,
    Unsupported,
)
from sandboxes.sessions import (
    SCHEMA_VERSION,
    BindingDamaged,
    Outcome,
    Resolved,
    SessionDeleted,
    SessionKey,
    ownership_tags,
)
from sandboxes.testing.simulated import SimulatedProvider
from sandboxes.types import OnTimeout, Sandbox, SandboxState
from tests.sandboxes.sessions.world import (
    BACKEND,
    KEY,
    FernetCipher,
    Replica,
    Space,
    make_plan,
    until,
)

AMBIGUOUS = [
    Authentication,
    Capacity,
    Conflict,
    Internal,
    InvalidRequest,
    TimedOut,
    Unavailable,
    Unsupported,
    SandboxError,
]
NewReplica = Callable[..., Replica]


async def bound_id(replica: Replica, key: SessionKey = KEY) -> str | None:
    binding = (await replica.manager.state(key=key)).binding(key)
    return binding.sandbox_id if binding else None


async def lose_binding(redis: Redis, replica: Replica) -> None:
    keys = replica.manager.names.of(KEY)
    await redis.delete(keys.binding, keys.token, keys.stale)


async def test_a_new_session_gets_a_sandbox_from_the_release_with_all_tags(
    replica: Replica, provider: SimulatedProvider
) -> None:
    resolved = await replica.resolve()
    assert resolved.outcome is Outcome.CREATED
    assert not resolved.fell_back
    (sandbox,) = provider.live()
    assert sandbox.request.template == "release-7"
    assert sandbox.request.network == replica.space.current.policy
    assert sandbox.request.env == {"WEKNORA_SKILL_OUTPUT_DIR": "/workspace/output"}
    assert sandbox.info.metadata == {
        "skillyard_tenant": "tenant-1",
        "skillyard_space": "space-1",
        "skillyard_session": "chat-1",
        "skillyard_backend": BACKEND,
        "skillyard_policy": "1",
        "skillyard_release": "7",
        "skillyard_schema": SCHEMA_VERSION,
    }
    assert replica.history() == [("created", "new")]
    assert replica.events[0].actor == "alice"


async def test_the_next_resolve_gets_the_same_sandbox_from_any_replica(
    new_replica: NewReplica, space: Space, provider: SimulatedProvider
) -> None:
    first = await new_replica().resolve()
    asked = space.asked
    second = await new_replica().resolve()
    assert second.outcome is Outcome.CONNECTED
    assert second.sandbox.id == first.sandbox.id
    assert second.sandbox.traffic_token == first.sandbox.traffic_token is not None
    assert space.asked == asked, "a bound session must not ask for the plan"


async def test_a_bound_session_takes_two_trips_to_redis_and_one_to_the_backend(
    replica: Replica, provider: SimulatedProvider, redis: Redis
) -> None:
    await replica.resolve()
    await replica.manager.begin_turn(key=KEY)
    provider.calls.clear()
    before = (await redis.info("commandstats"))["cmdstat_evalsha"]["calls"]
    await replica.resolve()
    after = await redis.info("commandstats")
    assert after["cmdstat_evalsha"]["calls"] - before == 2
    assert dict(provider.calls) == {"connect": 1}


async def test_a_session_of_another_space_gets_its_own_sandbox(replica: Replica) -> None:
    first = await replica.resolve()
    other = await replica.resolve(SessionKey("tenant-1", "space-2", "chat-1"))
    assert other.sandbox.id != first.sandbox.id


async def test_the_binding_never_expires_and_holds_no_readable_token(
    replica: Replica, redis: Redis
) -> None:
    resolved = await replica.resolve()
    keys = replica.manager.names.of(KEY)
    assert await redis.ttl(keys.binding) == -1
    assert await redis.ttl(keys.token) == -1
    token = resolved.sandbox.traffic_token
    assert token is not None
    for key in await redis.keys("*"):
        assert token.encode() not in await redis.get(key)


async def test_the_traffic_token_reaches_no_log(
    replica: Replica, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    resolved = await replica.resolve()
    await replica.resolve()
    assert resolved.sandbox.traffic_token
    assert resolved.sandbox.traffic_token not in caplog.text
    assert resolved.sandbox.traffic_token not in repr(resolved) + repr(replica.events)


async def test_the_stored_token_is_replayed_where_the_provider_gives_it_only_once(
    replica: Replica, provider: SimulatedProvider
) -> None:
    provider.returns_tokens = False
    created = await replica.resolve()
    again = await replica.resolve()
    assert again.sandbox.traffic_token == created.sandbox.traffic_token is not None


async def test_a_token_that_changed_is_patched_without_touching_the_document(
    replica: Replica, provider: SimulatedProvider, redis: Redis
) -> None:
    created = await replica.resolve()
    await replica.mark_stale()
    await replica.manager.begin_turn(key=KEY)
    await replica.manager.consume_turn(key=KEY)
    keys = replica.manager.names.of(KEY)
    document = await redis.get(keys.binding)
    provider.sandboxes[created.sandbox.id].traffic_token = "rotated"
    assert (await replica.resolve()).sandbox.traffic_token == "rotated"
    provider.returns_tokens = False
    assert (await replica.resolve()).sandbox.traffic_token == "rotated"
    assert await redis.get(keys.binding) == document
    assert (await replica.manager.state(key=KEY)).stale is not None


async def test_a_token_that_no_key_decrypts_keeps_the_binding_and_says_the_mend(
    replica: Replica, provider: SimulatedProvider, redis: Redis
) -> None:
    created = await replica.resolve()
    await redis.set(replica.manager.names.of(KEY).token, FernetCipher().encrypt("x"))
    provider.returns_tokens = False
    with pytest.raises(Internal, match="restore the encryption key"):
        await replica.resolve()
    assert await bound_id(replica) == created.sandbox.id
    provider.returns_tokens = True
    assert (await replica.resolve()).sandbox.id == created.sandbox.id


@pytest.mark.parametrize("gone", [NotFound, Terminal])
async def test_a_sandbox_that_is_gone_is_replaced(
    replica: Replica, provider: SimulatedProvider, gone: type[SandboxError]
) -> None:
    first = await replica.resolve()
    provider.vanish(first.sandbox.id)
    provider.fail_next("connect", gone("gone"))
    second = await replica.resolve()
    assert second.outcome is Outcome.REBUILT
    assert await bound_id(replica) == second.sandbox.id != first.sandbox.id
    assert replica.history()[1:] == [("unbound", "gone"), ("rebuilt", "gone")]


@pytest.mark.parametrize("kind", AMBIGUOUS)
@pytest.mark.parametrize("phase", ["before", "after"])
async def test_any_other_error_keeps_the_binding(
    replica: Replica, provider: SimulatedProvider, kind: type[SandboxError], phase: str
) -> None:
    first = await replica.resolve()
    provider.fail_next("connect", kind("who knows"), phase=phase)
    with pytest.raises(kind):
        await replica.resolve()
    assert await bound_id(replica) == first.sandbox.id
    assert (await replica.resolve()).sandbox.id == first.sandbox.id
    assert len(provider.created) == 1


async def test_an_error_that_is_no_sandbox_error_keeps_the_binding(
    replica: Replica, provider: SimulatedProvider
) -> None:
    first = await replica.resolve()
    provider.fail_next("connect", RuntimeError("a bug in an adapter"))
    with pytest.raises(RuntimeError):
        await replica.resolve()
    assert (await replica.resolve()).sandbox.id == first.sandbox.id


async def test_waking_a_paused_sandbox_is_part_of_its_history(
    replica: Replica, provider: SimulatedProvider
) -> None:
    first = await replica.resolve()
    await replica.client.pausing.pause(first.sandbox.id)
    assert (await replica.resolve()).outcome is Outcome.CONNECTED
    assert replica.history()[-1] == ("resumed", "paused")


async def test_a_use_prolongs_the_life_of_the_sandbox(
    replica: Replica, provider: SimulatedProvider, space: Space
) -> None:
    now = provider.clock()
    provider.clock = lambda: now
    space.current = make_plan(on_timeout=OnTimeout.PAUSE)
    first = await replica.resolve()
    now += timedelta(seconds=1700)
    await replica.resolve()
    now += timedelta(seconds=1700)
    assert (await replica.resolve()).sandbox.id == first.sandbox.id
    assert "resumed" not in [kind for kind, _ in replica.history()]


async def test_a_release_in_another_account_falls_back_to_the_base_template_visibly(
    replica: Replica, provider: SimulatedProvider, space: Space
) -> None:
    space.current = make_plan(fingerprint="account-b")
    assert (await replica.resolve()).fell_back
    (sandbox,) = provider.live()
    assert sandbox.request.template == "base"
    assert sandbox.info.metadata["skillyard_release"] == ""
    assert (await replica.resolve()).fell_back, "it stays visible while it lasts"


async def test_a_failed_create_leaves_nothing_bound(
    replica: Replica, provider: SimulatedProvider
) -> None:
    provider.fail_next("create", Capacity("quota"))
    with pytest.raises(Capacity):
        await replica.resolve()
    assert await bound_id(replica) is None
    assert (await replica.resolve()).outcome is Outcome.CREATED


async def test_a_create_of_unknown_outcome_is_claimed_not_repeated(
    replica: Replica, provider: SimulatedProvider
) -> None:
    provider.fail_next("create", TimedOut("no answer"), phase="after")
    with pytest.raises(TimedOut):
        await replica.resolve()
    resolved = await replica.resolve()
    assert resolved.outcome is Outcome.CLAIMED
    assert provider.created == [resolved.sandbox.id]


async def test_a_session_deleted_before_gets_no_sandbox(
    replica: Replica, provider: SimulatedProvider, space: Space
) -> None:
    space.exists = False
    with pytest.raises(SessionDeleted, match="start a new one"):
        await replica.resolve()
    assert provider.created == []


async def test_a_session_deleted_while_its_sandbox_was_made_leaves_none(
    replica: Replica, provider: SimulatedProvider, space: Space
) -> None:
    async def delete_meanwhile(op: str, phase: str, sandbox_id: str) -> None:
        if (op, phase) == ("create", "after"):
            space.exists = False

    provider.intercept = delete_meanwhile
    with pytest.raises(SessionDeleted):
        await replica.resolve()
    assert provider.live() == []
    assert await bound_id(replica) is None
    assert replica.history() == [("destroyed", "session_deleted")]


async def test_a_failed_question_whether_the_session_exists_creates_nothing(
    replica: Replica, provider: SimulatedProvider
) -> None:
    async def broken() -> bool:
        raise ConnectionError("the database is down")

    replica.space.session_exists = broken
    with pytest.raises(ConnectionError):
        await replica.resolve()
    assert provider.created == []


async def test_a_bound_session_needs_no_database(replica: Replica) -> None:
    async def broken() -> bool:
        raise ConnectionError("the database is down")

    first = await replica.resolve()
    replica.space.session_exists = broken
    replica.space.plan = broken
    assert (await replica.resolve()).sandbox.id == first.sandbox.id


async def test_a_damaged_binding_fails_closed_and_destroy_mends_it(
    replica: Replica, provider: SimulatedProvider, redis: Redis
) -> None:
    first = await replica.resolve()
    await redis.set(replica.manager.names.of(KEY).binding, '{"version": "99"}')
    with pytest.raises(BindingDamaged, match="destroy the session's sandbox"):
        await replica.resolve()
    assert [s.id for s in provider.live()] == [first.sandbox.id]
    assert await replica.destroy()
    assert provider.live() == []
    assert (await replica.resolve()).outcome is Outcome.CREATED


async def test_a_binding_of_another_session_is_not_believed(replica: Replica, redis: Redis) -> None:
    other = SessionKey("tenant-2", "space-1", "chat-1")
    await replica.resolve(other)
    names = replica.manager.names
    document = await redis.get(names.of(other).binding)
    await redis.set(names.of(KEY).binding, document)
    with pytest.raises(BindingDamaged):
        await replica.resolve()


async def test_a_backend_that_answers_with_another_sandbox_is_refused(
    replica: Replica, provider: SimulatedProvider
) -> None:
    first = await replica.resolve()
    other = await replica.resolve(SessionKey("tenant-1", "space-1", "chat-2"))
    original = provider.wake
    provider.wake = lambda *args: original(other.sandbox.id, *args[1:])
    with pytest.raises(Internal, match="another sandbox"):
        await replica.resolve()
    assert await bound_id(replica) == first.sandbox.id


async def test_a_space_moved_to_another_backend_starts_anew_there(
    replica: Replica, provider: SimulatedProvider
) -> None:
    await replica.resolve()
    elsewhere = SimulatedProvider(templates=["base", "release-7"])
    resolved = await replica.manager.resolve(
        key=KEY, client=elsewhere.client(), backend="backend-2", plan=replica.space.plan
    )
    assert resolved.outcome is Outcome.REBUILT
    assert len(provider.live()) == len(elsewhere.live()) == 1
    assert replica.history()[1:] == [
        ("unbound", "backend_changed"),
        ("rebuilt", "backend_changed"),
    ]


async def test_the_space_changing_while_the_sandbox_is_made_marks_it_stale(
    replica: Replica, provider: SimulatedProvider, space: Space
) -> None:
    async def switch(op: str, phase: str, sandbox_id: str) -> None:
        if (op, phase) == ("create", "after"):
            space.current = make_plan(release="8")
            assert (await replica.mark_stale()).marked == 0

    provider.intercept = switch
    assert (await replica.resolve()).stale
    provider.intercept = None
    assert (await replica.resolve()).outcome is Outcome.REBUILT
    (sandbox,) = provider.live()
    assert sandbox.request.template == "release-8"


async def test_sixty_four_first_resolves_at_once_create_one_sandbox(
    new_replica: NewReplica, provider: SimulatedProvider
) -> None:
    provider.latency_s = 0.01
    replicas = [new_replica() for _ in range(8)]
    resolved = await asyncio.gather(*(replicas[i % 8].resolve() for i in range(64)))
    assert provider.calls["create"] == 1
    assert {r.sandbox.id for r in resolved} == set(provider.created)
    outcomes = [r.outcome for r in resolved]
    assert outcomes.count(Outcome.CREATED) == 1
    assert outcomes.count(Outcome.CONNECTED) == 63


async def test_a_hook_that_fails_or_hangs_does_not_fail_the_resolve(
    replica: Replica, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(event: object) -> None:
        raise ConnectionError("the database is down")

    async def hangs(event: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("sandboxes.sessions.operation._EVENT_TIMEOUT_S", 0.02)
    manager = replica.manager
    for number, hook in enumerate([broken, hangs]):
        monkeypatch.setattr(manager, "_on_event", hook)
        key = SessionKey("tenant-1", "space-1", f"hook-{number}")
        assert (await replica.resolve(key)).outcome is Outcome.CREATED
    assert caplog.text.count("could not be recorded") == 2


class TestClaim:
    """A session whose binding is lost takes its sandbox back by its tags."""

    async def test_the_oldest_is_taken_and_its_duplicates_deleted(
        self, replica: Replica, provider: SimulatedProvider, redis: Redis, space: Space
    ) -> None:
        request = space.current.request(KEY, BACKEND)
        now = provider.clock()
        newer = provider.start(request, started_at=now)
        oldest = provider.start(request, started_at=now - timedelta(hours=1))
        unknown = provider.start(request)
        info = provider.sandboxes[unknown.id].info
        object.__setattr__(info, "started_at", None)
        resolved = await replica.resolve()
        assert resolved.outcome is Outcome.CLAIMED
        assert resolved.sandbox.id == oldest.id
        assert [s.id for s in provider.live()] == [oldest.id]
        assert provider.calls["create"] == 0
        assert replica.history() == [
            ("claimed", "binding_lost"),
            ("destroyed", "duplicate"),
            ("destroyed", "duplicate"),
        ]
        assert newer.id != oldest.id

    async def test_a_paused_one_is_taken_too(
        self, replica: Replica, provider: SimulatedProvider, redis: Redis
    ) -> None:
        first = await replica.resolve()
        await replica.client.pausing.pause(first.sandbox.id)
        await lose_binding(redis, replica)
        assert (await replica.resolve()).sandbox.id == first.sandbox.id

    async def test_a_dead_one_is_not_taken(
        self, replica: Replica, provider: SimulatedProvider, redis: Redis
    ) -> None:
        first = await replica.resolve()
        provider.set_state(first.sandbox.id, SandboxState.TERMINAL)
        await lose_binding(redis, replica)
        assert (await replica.resolve()).outcome is Outcome.CREATED

    async def test_one_that_is_gone_when_touched_makes_room_for_the_next(
        self, replica: Replica, provider: SimulatedProvider, space: Space
    ) -> None:
        request = space.current.request(KEY, BACKEND)
        now = provider.clock()
        provider.start(request, started_at=now - timedelta(hours=1))
        second = provider.start(request, started_at=now)
        provider.fail_next("connect", NotFound("gone"))
        assert (await replica.resolve()).sandbox.id == second.id

    async def test_an_unknown_error_creates_nothing(
        self, replica: Replica, provider: SimulatedProvider, space: Space
    ) -> None:
        existing = provider.start(space.current.request(KEY, BACKEND))
        provider.fail_next("connect", Unavailable("down"))
        with pytest.raises(Unavailable):
            await replica.resolve()
        provider.fail_next("list", Unavailable("down"))
        with pytest.raises(Unavailable):
            await replica.resolve()
        assert provider.created == [existing.id]
        assert (await replica.resolve()).sandbox.id == existing.id

    async def test_one_whose_token_is_lost_is_deleted_because_it_would_answer_403(
        self, replica: Replica, provider: SimulatedProvider, redis: Redis
    ) -> None:
        provider.returns_tokens = False
        first = await replica.resolve()
        await lose_binding(redis, replica)
        second = await replica.resolve()
        assert second.outcome is Outcome.CREATED
        assert [s.id for s in provider.live()] == [second.sandbox.id]
        assert ("destroyed", "token_lost") in replica.history()
        assert first.sandbox.id != second.sandbox.id

    async def test_with_inbound_open_no_token_is_needed(
        self, replica: Replica, provider: SimulatedProvider, redis: Redis, space: Space
    ) -> None:
        space.current = make_plan(inbound=True)
        provider.returns_tokens = False
        first = await replica.resolve()
        await lose_binding(redis, replica)
        assert (await replica.resolve()).sandbox.id == first.sandbox.id

    async def test_a_provider_that_ignores_the_filter_is_not_believed(
        self,
        replica: Replica,
        provider: SimulatedProvider,
        space: Space,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        other = provider.start(
            space.current.request(SessionKey("tenant-2", "space-1", "chat-1"), BACKEND)
        )

        async def everything(filter: object) -> object:
            for sandbox in provider.live():
                yield sandbox.info

        monkeypatch.setattr(replica.client, "list", everything)
        with pytest.raises(Internal, match="can't be trusted"):
            await replica.resolve()
        assert provider.created == [other.id]

    async def test_only_the_ownership_tags_decide(
        self, replica: Replica, provider: SimulatedProvider, space: Space, redis: Redis
    ) -> None:
        first = await replica.resolve()
        await lose_binding(redis, replica)
        space.current = make_plan(release="8", policy_revision=2)
        resolved = await replica.resolve()
        assert resolved.sandbox.id == first.sandbox.id
        assert resolved.stale, "it is older than the space: an update waits"
        assert resolved.binding.release == "7"
        assert ownership_tags(KEY, BACKEND).items() <= provider.live()[0].info.metadata.items()

    async def test_the_turn_that_redis_forgot_keeps_its_sandbox(
        self, replica: Replica, redis: Redis, space: Space
    ) -> None:
        await replica.manager.begin_turn(key=KEY)
        first = await replica.resolve()
        await redis.flushall()
        space.current = make_plan(release="8")
        for _ in range(3):
            assert (await replica.resolve()).sandbox.id == first.sandbox.id
        await replica.manager.end_turn(key=KEY)
        await replica.manager.begin_turn(key=KEY)
        assert (await replica.resolve()).outcome is Outcome.REBUILT

    async def test_without_an_end_the_next_turn_updates_it(
        self, replica: Replica, redis: Redis, space: Space
    ) -> None:
        first = await replica.resolve()
        await redis.flushall()
        space.current = make_plan(release="8")
        assert (await replica.resolve()).sandbox.id == first.sandbox.id
        await replica.manager.begin_turn(key=KEY)
        assert (await replica.resolve()).outcome is Outcome.REBUILT

    async def test_a_failed_delete_of_a_duplicate_is_left_to_the_reaper(
        self, replica: Replica, provider: SimulatedProvider, space: Space
    ) -> None:
        request = space.current.request(KEY, BACKEND)
        now = provider.clock()
        oldest = provider.start(request, started_at=now - timedelta(hours=1))
        provider.start(request, started_at=now)
        provider.fail_next("delete", Unavailable("down"))
        assert (await replica.resolve()).sandbox.id == oldest.id
        assert len(provider.live()) == 2


class TestLostRace:
    """Somebody bound the session between our create and our bind, past the lock."""

    async def plant(
        self, replica: Replica, provider: SimulatedProvider, redis: Redis, document: bytes | None
    ) -> str:
        """While the sandbox is being made, bind the session to another one; returns its id."""
        request = replica.space.current.request(KEY, BACKEND)
        rival = Replica(redis, SimulatedProvider(templates=["release-7"]), replica.space)
        await rival.resolve()
        names = rival.manager.names.of(KEY)
        stored = {name: await redis.get(name) for name in (names.binding, names.token)}
        await redis.flushall()
        provider.start(request)
        winner = provider.created[-1]
        held_back = provider.sandboxes.pop(winner)
        stored[names.binding] = document or stored[names.binding].replace(
            b"sim000001", winner.encode()
        )

        async def bind_first(op: str, phase: str, sandbox_id: str) -> None:
            if (op, phase) == ("create", "after"):
                provider.sandboxes[winner] = held_back
                await redis.mset(stored)

        provider.intercept = bind_first
        return winner

    async def test_the_loser_deletes_its_own_and_joins_the_winner(
        self, replica: Replica, provider: SimulatedProvider, redis: Redis
    ) -> None:
        winner = await self.plant(replica, provider, redis, None)
        resolved = await replica.resolve()
        assert resolved.sandbox.id == winner
        assert [s.id for s in provider.live()] == [winner]
        assert ("destroyed", "lost_race") in replica.history()

    async def test_a_winner_that_cannot_be_read_costs_nobody_a_sandbox(
        self, replica: Replica, provider: SimulatedProvider, redis: Redis
    ) -> None:
        await self.plant(replica, provider, redis, b"???")
        with pytest.raises(BindingDamaged):
            await replica.resolve()
        assert len(provider.live()) == 2


class TestCancellation:
    async def test_a_caller_that_leaves_while_the_session_is_checked_leaves_no_sandbox(
        self, replica: Replica, provider: SimulatedProvider, space: Space
    ) -> None:
        checks = 0
        stuck = asyncio.Event()

        async def slow_second_time() -> bool:
            nonlocal checks
            checks += 1
            if checks == 2:
                stuck.set()
                await asyncio.Event().wait()
            return True

        space.session_exists = slow_second_time
        provider.latency_s = 0.02
        task = asyncio.create_task(replica.resolve())
        await stuck.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert provider.live() == []
        assert await bound_id(replica) is None

    async def test_cleanup_goes_on_through_repeated_cancellation(
        self, replica: Replica, provider: SimulatedProvider, space: Space
    ) -> None:
        deleting, finish = asyncio.Event(), asyncio.Event()

        async def slow_delete(op: str, phase: str, sandbox_id: str) -> None:
            if (op, phase) == ("create", "after"):
                space.exists = False
            if (op, phase) == ("delete", "before"):
                deleting.set()
                await finish.wait()

        provider.intercept = slow_delete
        task = asyncio.create_task(replica.resolve())
        await deleting.wait()
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        assert not task.done()
        finish.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert provider.live() == []

    async def test_the_lock_is_free_again_at_once(
        self, replica: Replica, new_replica: NewReplica, provider: SimulatedProvider
    ) -> None:
        blocked = asyncio.Event()

        async def block(op: str, phase: str, sandbox_id: str) -> None:
            blocked.set()
            await asyncio.Event().wait()

        provider.intercept = block
        task = asyncio.create_task(replica.resolve())
        await blocked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        provider.intercept = None
        assert (await new_replica().resolve(wait_s=0.5)).outcome is Outcome.CREATED

    async def test_a_caller_that_leaves_in_the_queue_holds_nobody_up(
        self, replica: Replica, provider: SimulatedProvider
    ) -> None:
        blocked, go = asyncio.Event(), asyncio.Event()

        async def block(op: str, phase: str, sandbox_id: str) -> None:
            if (op, phase) == ("create", "before"):
                blocked.set()
                await go.wait()

        provider.intercept = block
        first = asyncio.create_task(replica.resolve())
        await blocked.wait()
        second = asyncio.create_task(replica.resolve())
        third = asyncio.create_task(replica.resolve())
        await until(lambda: replica.manager._locks.local(KEY).locked())
        second.cancel()
        go.set()
        assert (await first).sandbox.id == (await third).sandbox.id
        with pytest.raises(asyncio.CancelledError):
            await second


class Preparation:
    """Notes whom it was shown, and whether anybody could have got at them before."""

    def __init__(self, replica: Replica, *, fails: bool = False) -> None:
        self.replica = replica
        self.fails = fails
        self.shown: list[str] = []

    async def __call__(self, sandbox: Sandbox) -> None:
        assert (await self.replica.manager.state(key=KEY)).stored is None
        self.shown.append(sandbox.id)
        if self.fails:
            raise Unavailable("The files can't be written.")

    async def resolve(self) -> Resolved:
        return await self.replica.manager.resolve(
            key=KEY,
            client=self.replica.client,
            backend=BACKEND,
            plan=self.replica.space.plan,
            prepare=self,
        )


async def test_a_sandbox_is_prepared_once_and_before_anybody_can_use_it(
    replica: Replica, redis: Redis
) -> None:
    prepare = Preparation(replica)
    made = await prepare.resolve()
    assert (await prepare.resolve()).outcome is Outcome.CONNECTED
    assert prepare.shown == [made.sandbox.id]
    await redis.flushall()
    assert (await prepare.resolve()).outcome is Outcome.CLAIMED
    assert prepare.shown == [made.sandbox.id] * 2


async def test_a_new_sandbox_that_cannot_be_prepared_is_deleted(
    replica: Replica, provider: SimulatedProvider
) -> None:
    with pytest.raises(Unavailable):
        await Preparation(replica, fails=True).resolve()
    assert provider.live() == []


async def test_a_claimed_sandbox_that_cannot_be_prepared_is_kept(
    replica: Replica, provider: SimulatedProvider, redis: Redis
) -> None:
    made = await replica.resolve()
    await redis.flushall()
    with pytest.raises(Unavailable):
        await Preparation(replica, fails=True).resolve()
    assert (await replica.resolve()).sandbox.id == made.sandbox.id
