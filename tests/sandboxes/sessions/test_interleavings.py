"""Replicas that resolve, end, destroy and crash in every order that Hypothesis can think of.

Each call of the backend stops at a gate before and after its effect, so that a rule decides who
moves next, what the call answers, and who dies in between. Redis is real. A crash cuts a replica
off from Redis and the backend and then cancels it: none of its cleanup has any effect, and its lock
stays behind until a rule lets the lease lapse.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisGone

from sandboxes.errors import SandboxError, TimedOut, Unavailable
from sandboxes.sessions import (
    EventKind,
    LockTiming,
    Resolved,
    SessionEvent,
    SessionKey,
    Why,
    reap,
)
from sandboxes.sessions.keys import TAG_SESSION
from sandboxes.sessions.lock import Held
from sandboxes.sessions.scripts import _load
from sandboxes.testing.simulated import SimulatedProvider
from tests.sandboxes.sessions.world import BACKEND, RedisServer, Replica, Space, make_plan

SESSIONS = [SessionKey("tenant-1", "space-1", "chat-1")]  # more would only dilute the search
TIMING = LockTiming(retry_s=(0.0005, 0.001))
OP: ContextVar[Op | None] = ContextVar("op", default=None)


class MortalRedis(Redis):
    dead = False

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        if self.dead:
            raise RedisGone("the process is dead")
        reply = await super().execute_command(*args, **options)
        op = OP.get()
        if op is not None and args[0] in ("EVALSHA", "EVAL") and args[1] in _load("acquire"):
            op.acquired(granted=reply[0] == 1)
        return reply


class Op:
    """One call of a replica, in flight."""

    def __init__(self, machine: Interleavings, replica: MortalReplica, key: SessionKey) -> None:
        self.machine = machine
        self.replica = replica
        self.key = key
        self.refused = 0
        self.gate: asyncio.Future[BaseException | None] | None = None
        self.where = ""
        self.consumed_at_start = False
        self.lease = 0
        self.held: Held | None = None
        self.task: asyncio.Task[None]

    def acquired(self, *, granted: bool) -> None:
        if granted:
            self.consumed_at_start = self.machine.consumed[self.key]
            self.lease = self.machine.lease(self.key)
        else:
            self.refused += 1

    async def run(self, work: Coroutine[Any, Any, Any]) -> None:
        OP.set(self)
        try:
            result = await work
        except (SandboxError, asyncio.CancelledError):
            return
        if isinstance(result, Resolved):
            self.machine.handed_out(self.key, result, self.lease)

    @property
    def waits_in_memory(self) -> bool:
        """An earlier call of the same process and session goes first."""
        for op in self.machine.ops:
            if op is self:
                return False
            if op.replica is self.replica and op.key == self.key and not op.task.done():
                return True
        return False

    @property
    def settled(self) -> bool:
        return (
            self.task.done() or self.gate is not None or self.refused >= 2 or self.waits_in_memory
        )


class MortalReplica(Replica):
    def __init__(self, socket: str, machine: Interleavings) -> None:
        self.redis = MortalRedis(unix_socket_path=socket, retry=Retry(NoBackoff(), 0))
        super().__init__(self.redis, machine.provider, machine.space, timing=TIMING)
        self.machine = machine
        hold = self.manager._locks.hold

        def recording(key: SessionKey, **options: Any) -> Held:
            held = hold(key, **options)
            if (op := OP.get()) is not None:
                op.held = held
            return held

        self.manager._locks.hold = recording  # type: ignore[method-assign]

    async def _on_event(self, event: SessionEvent) -> None:
        op = OP.get()
        rebuild = event.kind is EventKind.DESTROYED and event.why is Why.STALE
        if rebuild and op is not None and op.consumed_at_start:
            # Raising here would only be logged.
            self.machine.broken.append("a rebuild inside a consumed turn")


class Interleavings(RuleBasedStateMachine):
    def __init__(self, socket: str) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda loop, context: None)
        self.socket = socket
        self.space = Space()
        ticks = itertools.count()
        self.provider = SimulatedProvider(
            templates=["base", "release-7", "release-8"],
            clock=lambda: datetime.now(UTC) + timedelta(milliseconds=next(ticks)),
        )
        self.provider.intercept = self.at_gate
        self.redis = Redis(unix_socket_path=socket)
        self.replicas = [MortalReplica(socket, self) for _ in range(2)]
        self.ops: list[Op] = []
        self.broken: list[str] = []
        self.consumed = dict.fromkeys(SESSIONS, False)
        self.refs = dict.fromkeys(SESSIONS, 0)
        self.leases = dict.fromkeys(SESSIONS, 0)
        self.given: dict[SessionKey, set[str]] = {key: set() for key in SESSIONS}
        self.bound: dict[SessionKey, str | None] = dict.fromkeys(SESSIONS)
        self.late_creates: list[Any] = []
        self.await_(self.redis.flushall())

    # The machine's hands

    def await_(self, work: Any) -> Any:
        async def run() -> Any:
            return await work

        return self.loop.run_until_complete(run())

    async def at_gate(self, op_name: str, phase: str, sandbox_id: str) -> None:
        op = OP.get()
        if op is None:
            return
        if op.replica.redis.dead:
            raise Unavailable("the process is dead")
        op.gate = self.loop.create_future()
        op.where = f"{op_name}/{phase}"
        self.moved()
        try:
            verdict = await op.gate
        finally:
            op.gate = None
        if verdict is not None:
            raise verdict

    def moved(self) -> None:
        for op in self.ops:
            op.refused = 0

    def open(self, op: Op, verdict: BaseException | None) -> None:
        assert op.gate is not None
        op.gate.set_result(verdict)
        op.gate = None
        self.moved()

    def settle(self) -> None:
        async def until_settled() -> None:
            async with asyncio.timeout(20):
                done = -1
                while True:
                    finished = sum(op.task.done() for op in self.ops)
                    if finished != done:
                        self.moved()
                        done = finished
                    if all(op.settled for op in self.ops):
                        return
                    await asyncio.sleep(0.0002)

        self.loop.run_until_complete(until_settled())
        for op in [op for op in self.ops if op.task.done()]:
            self.ops.remove(op)
            if not op.task.cancelled() and (error := op.task.exception()) is not None:
                raise error
        assert not self.broken
        self.note_bindings()

    def note_bindings(self) -> None:
        live = {sandbox.id for sandbox in self.provider.sandboxes.values()}
        for key in SESSIONS:
            binding = self.await_(self.replicas[0].manager.state(key=key)).binding(key)
            now = binding.sandbox_id if binding else None
            before = self.bound[key]
            if before is not None and now != before:
                assert before not in live, f"{before} lost its binding while alive"
            self.bound[key] = now

    def start(self, replica: int, key: SessionKey, work: Any) -> None:
        op = Op(self, self.replicas[replica], key)
        op.task = self.loop.create_task(op.run(work))
        self.ops.append(op)
        self.settle()

    def lease(self, key: SessionKey) -> int:
        """The number of the turn that is on, 0 if none is."""
        return self.leases[key] if self.refs[key] else 0

    def handed_out(self, key: SessionKey, resolved: Resolved, lease: int) -> None:
        """`lease`: the turn in which its call got the lock. A call from before the turn, or from
        an earlier one, does not consume this turn's ticket, however late it ends."""
        others = self.given[key] - {resolved.sandbox.id}
        live = {sandbox.id for sandbox in self.provider.sandboxes.values()}
        assert not others & live, "two live sandboxes were bound to one session"
        self.given[key].add(resolved.sandbox.id)
        if lease and lease == self.lease(key):
            self.consumed[key] = True

    def end_lease(self, key: SessionKey) -> None:
        self.refs[key] = 0
        self.consumed[key] = False

    # Rules. None has a precondition: who wins the lock is up to the clock, and Hypothesis must be
    # offered the same choices when it repeats a run.

    replica = st.integers(0, 1)
    session = st.sampled_from(SESSIONS)

    @initialize(bound=st.booleans())
    def begin_bound(self, bound: bool) -> None:
        if bound:
            for key in SESSIONS:
                self.resolve(0, key)
            self.finish()

    @rule(replica=replica, key=session)
    def resolve(self, replica: int, key: SessionKey) -> None:
        self.start(replica, key, self.replicas[replica].resolve(key, wait_s=600))

    @rule(replica=replica, key=session)
    def destroy(self, replica: int, key: SessionKey) -> None:
        manager = self.replicas[replica].manager
        client = self.replicas[replica].client
        work = manager.destroy(key=key, client=client, backend=BACKEND, wait_s=600)
        self.start(replica, key, work)

    @rule(replica=replica, key=session)
    def begin(self, replica: int, key: SessionKey) -> None:
        state = self.await_(self.replicas[replica].manager.begin_turn(key=key))
        self.refs[key] = state.refs
        if state.refs == 1:
            self.leases[key] += 1
            self.consumed[key] = False

    @rule(replica=replica, key=session)
    def end(self, replica: int, key: SessionKey) -> None:
        state = self.await_(self.replicas[replica].manager.end_turn(key=key))
        self.refs[key] = state.refs
        if not state.active:
            self.end_lease(key)

    @rule(replica=replica, key=session)
    def begin_and_resolve(self, replica: int, key: SessionKey) -> None:
        self.begin(replica, key)
        self.resolve_undisturbed(replica, key)

    @rule(replica=replica, key=session)
    def consume(self, replica: int, key: SessionKey) -> None:
        async def work() -> None:
            lease = self.refs[key]
            state = await self.replicas[replica].manager.consume_turn(key=key, wait_s=600)
            if lease and state.refs and not state.ticket:
                self.consumed[key] = True

        self.start(replica, key, work())

    @rule(replica=replica, release=st.sampled_from(["7", "8"]))
    def invalidate(self, replica: int, release: str) -> None:
        self.space.current = make_plan(release=release)
        self.await_(self.replicas[replica].mark_stale())

    @rule(
        which=st.integers(0, 7),
        verdict=st.sampled_from(["go", "go", "unavailable", "timeout", "bug"]),
    )
    def step(self, which: int, verdict: str) -> None:
        gated = [op for op in self.ops if op.gate]
        if not gated:
            return
        op = gated[which % len(gated)]
        verdicts: dict[str, BaseException | None] = {
            "go": None,
            "unavailable": Unavailable("down"),
            "timeout": TimedOut("no answer"),
            "bug": SandboxError("who knows"),
        }
        self.open(op, verdicts[verdict])
        self.settle()

    @rule()
    def finish(self) -> None:
        """Everybody goes on, undisturbed."""
        while gated := [op for op in self.ops if op.gate]:
            for op in gated:
                self.open(op, None)
            self.settle()

    @rule(replica=replica, key=session)
    def resolve_undisturbed(self, replica: int, key: SessionKey) -> None:
        self.resolve(replica, key)
        if self.ops:
            self.finish()

    @rule(replica=replica)
    def crash(self, replica: int) -> None:
        dead = self.replicas[replica]
        dead.redis.dead = True
        victims = [op for op in self.ops if op.replica is dead]
        for op in victims:
            if op.where == "create/before" and op.gate is not None:
                self.late_creates.append(self.space.current.request(op.key, BACKEND))
            op.task.cancel()

        async def bury() -> None:
            await asyncio.gather(*(op.task for op in victims), return_exceptions=True)
            await dead.manager.aclose()
            await dead.redis.aclose()

        self.await_(bury())
        self.ops = [op for op in self.ops if op.replica is not dead]
        self.replicas[replica] = MortalReplica(self.socket, self)
        self.moved()
        self.settle()

    @rule()
    def a_create_of_a_dead_process_takes_effect(self) -> None:
        if self.late_creates:
            self.provider.start(self.late_creates.pop())

    @rule(key=session)
    def lease_of_lock_lapses(self, key: SessionKey) -> None:
        """A holder that lives notices before it does anything else, by its own clock."""
        self.await_(self.redis.delete(self.replicas[0].manager.names.of(key).lock))
        for op in self.ops:
            if op.key == key and op.gate is not None and op.held is not None:
                self.loop.call_soon(op.held._lose)
        self.moved()
        self.await_(asyncio.sleep(0))
        self.await_(asyncio.sleep(0))
        self.settle()

    @rule(key=session)
    def lease_of_turn_lapses(self, key: SessionKey) -> None:
        self.await_(self.redis.delete(self.replicas[0].manager.names.of(key).turn))
        self.end_lease(key)

    @rule(key=session)
    def sandbox_dies(self, key: SessionKey) -> None:
        if (bound := self.bound[key]) in self.provider.sandboxes:
            self.provider.vanish(bound)

    @rule()
    def redis_is_flushed(self) -> None:
        if self.ops:
            return
        sessions = [s.info.metadata[TAG_SESSION] for s in self.provider.sandboxes.values()]
        if len(sessions) != len(set(sessions)):
            return  # the oldest would be claimed, whichever it is
        self.await_(self.redis.flushall())
        for key in SESSIONS:
            self.end_lease(key)
            self.bound[key] = None

    @invariant()
    def no_more_than_one_given_sandbox_lives(self) -> None:
        for given in self.given.values():
            assert len(given & set(self.provider.sandboxes)) <= 1

    def teardown(self) -> None:
        try:
            self.everything_heals()
        finally:
            self.await_(self.close())
            self.loop.close()

    def everything_heals(self) -> None:
        """With no more faults each session gets one sandbox, and the reaper leaves no other."""
        for replica in range(2):
            self.crash(replica)
        self.provider.intercept = None
        for key in SESSIONS:
            self.await_(self.redis.delete(self.replicas[0].manager.names.of(key).lock))
        for key in SESSIONS:
            resolved = self.await_(self.replicas[0].resolve(key, wait_s=5))
            self.handed_out(key, resolved, self.lease(key))
        later = datetime.now(UTC) + timedelta(hours=1)
        replica = self.replicas[1]
        report = self.await_(
            reap(
                client=replica.client,
                sessions=replica.manager,
                backend=BACKEND,
                grace_s=0,
                dry_run=False,
                now=later,
            )
        )
        assert report.aborted == ""
        self.note_bindings()
        live = sorted(self.provider.sandboxes)
        assert live == sorted(str(self.bound[key]) for key in SESSIONS)

    async def close(self) -> None:
        for op in self.ops:
            op.task.cancel()
        await asyncio.gather(*(op.task for op in self.ops), return_exceptions=True)
        for replica in self.replicas:
            await replica.manager.aclose()
            await replica.redis.aclose()
        await self.redis.aclose()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("examples", [25, pytest.param(250, marks=pytest.mark.slow)])
def test_no_order_of_calls_and_crashes_breaks_the_promises(
    redis_server: RedisServer, examples: int
) -> None:
    run_state_machine_as_test(
        lambda: Interleavings(redis_server.socket),
        settings=settings(
            max_examples=examples,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
