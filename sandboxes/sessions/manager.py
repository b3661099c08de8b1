"""Sessions and their sandboxes: the one door to this package."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress

from redis.asyncio import Redis

from sandboxes.client import SandboxClient
from sandboxes.sessions.binding import (
    Binding,
    BindingDamaged,
    Cipher,
    StoredBinding,
    read_bindings,
    scan,
)
from sandboxes.sessions.connect import connect_bound, stored_token
from sandboxes.sessions.events import EventKind, OnEvent, Why
from sandboxes.sessions.introduce import Introduction, Make
from sandboxes.sessions.keys import KeyNames, SessionKey
from sandboxes.sessions.lease import TurnLease, TurnState
from sandboxes.sessions.lock import Held, LockTiming, SessionLocks, Snapshot
from sandboxes.sessions.operation import Operation, SessionExists, Writes
from sandboxes.sessions.resolve import Plan, Prepare, Resolution, Resolved
from sandboxes.sessions.rollout import Rollout, StaleReport, mark_space_stale
from sandboxes.sessions.scripts import Scripts
from sandboxes.types import Sandbox

__all__ = ["SessionManager"]


class SessionManager:
    """One a process and event loop. Any number of them, anywhere, may share one Redis.

    Every method is safe to call concurrently and raises only `SandboxError` (and what the caller's
    own `plan` or `session_exists` raise). When Redis fails they raise Unavailable and change
    nothing. `redis` stays the caller's to close. `turn_ttl_s` is how long a turn that nobody ended
    protects its sandbox after the last touch.
    """

    def __init__(
        self,
        redis: Redis,
        *,
        cipher: Cipher,
        namespace: str = "skillyard",
        on_event: OnEvent | None = None,
        timing: LockTiming | None = None,
        turn_ttl_s: float = 30 * 60,
        redis_timeout_s: float = 5.0,
    ) -> None:
        self.names = KeyNames(namespace)
        self._cipher = cipher
        self._on_event = on_event
        self._scripts = Scripts(redis, timeout_s=redis_timeout_s)
        self._lease = TurnLease(self._scripts, ttl_s=turn_ttl_s)
        self._locks = SessionLocks(
            self._scripts, self.names, timing or LockTiming(), turn_ttl_ms=self._lease.ttl_ms
        )

    async def aclose(self) -> None:
        """Stop background work. Idempotent; sandboxes and bindings live on."""
        await self._locks.aclose()

    async def resolve(
        self,
        *,
        key: SessionKey,
        client: SandboxClient,
        backend: str,
        plan: Plan,
        session_exists: SessionExists | None = None,
        prepare: Prepare | None = None,
        actor: str = "",
        wait_s: float | None = None,
    ) -> Resolved:
        """The session's sandbox, made if it has none. Consumes the turn's rebuild ticket.

        `backend` is the id of the backend that `client` was opened for. A bound and fresh session
        costs one `connect`, two trips to Redis, and no call of `plan` or `session_exists`.
        SessionBusy after `wait_s` in the queue, LockLost if the lock lapsed: both say try again.
        Any error of the backend but a "gone" leaves the binding as it is. SessionDeleted if
        `session_exists` says no. `prepare` is awaited with a sandbox that was made or claimed, under
        the lock and before it is bound; what it raises is raised, and a sandbox just made is deleted.
        """
        async with self._locks.hold(key, wait_s=wait_s, take_ticket=True) as held:
            resolution = Resolution(
                held=held,
                client=client,
                backend=backend,
                cipher=self._cipher,
                on_event=self._on_event,
                actor=actor,
                turn_ttl_ms=self._lease.ttl_ms,
                plan=plan,
                session_exists=session_exists,
                prepare=prepare,
            )
            return await resolution.run()

    async def introduce(
        self,
        *,
        key: SessionKey,
        client: SandboxClient,
        backend: str,
        plan: Plan,
        make: Make,
        actor: str = "",
        wait_s: float | None = None,
    ) -> Sandbox:
        """Bind a sandbox that a client asks for by itself: `make` creates it, with the session's tags,
        under the session's lock. SessionTaken, and nothing made, if the session has one that lives."""
        async with self._locks.hold(key, wait_s=wait_s) as held:
            introduction = Introduction(
                held=held,
                client=client,
                backend=backend,
                cipher=self._cipher,
                on_event=self._on_event,
                actor=actor,
                turn_ttl_ms=self._lease.ttl_ms,
                plan=plan,
                session_exists=None,
                prepare=None,
            )
            return await introduction.introduce(make)

    async def lookup(
        self, *, key: SessionKey, client: SandboxClient, backend: str
    ) -> Sandbox | None:
        """A handle on the session's sandbox (waking it), or None. Never makes, binds or unbinds."""
        stored = (await self._locks.look(key)).stored
        if stored is None:
            return None
        binding = stored.parse(key)
        if binding.backend != backend:
            return None
        return await connect_bound(client, binding, stored_token(self._cipher, stored))

    async def traffic_token(self, *, key: SessionKey, sandbox_id: str) -> str | None:
        """Of this sandbox, as it is stored with the session; None if that has none, or another one. Touches
        nothing."""
        stored = (await self._locks.look(key)).stored
        if stored is None or stored.parse(key).sandbox_id != sandbox_id:
            return None
        return stored_token(self._cipher, stored)

    async def state(self, *, key: SessionKey) -> Snapshot:
        """What Redis knows of the session: binding, stale mark and turn. Touches nothing."""
        return await self._locks.look(key)

    async def destroy(
        self,
        *,
        key: SessionKey,
        client: SandboxClient,
        backend: str,
        why: Why = Why.REQUESTED,
        actor: str = "",
        wait_s: float | None = None,
    ) -> bool:
        """Delete the session's sandbox, then its binding. Idempotent; False if there was nothing.

        An error of the backend other than "gone" keeps the binding, so that the call can be
        repeated. A session that is not bound, or whose binding is damaged, is searched by its tags.
        """
        async with self._locks.hold(key, wait_s=wait_s) as held:
            operation = Operation(
                held=held,
                client=client,
                backend=backend,
                cipher=self._cipher,
                on_event=self._on_event,
                actor=actor,
                turn_ttl_ms=self._lease.ttl_ms,
            )
            return await _destroy(operation, why)

    async def forget(
        self,
        *,
        key: SessionKey,
        backend: str,
        why: Why,
        actor: str = "",
        wait_s: float | None = None,
    ) -> bool:
        """Forget the session's binding to a sandbox of this backend, which is not touched: for one that
        nobody can reach any more. Idempotent; False if there was none."""
        async with self._locks.hold(key, wait_s=wait_s) as held:
            stored = held.snapshot.stored
            if stored is None:
                return False
            binding = stored.parse(key)
            if binding.backend != backend:
                return False
            writes = Writes(
                held=held,
                backend=backend,
                cipher=self._cipher,
                on_event=self._on_event,
                actor=actor,
                turn_ttl_ms=self._lease.ttl_ms,
            )
            await writes.unbind(stored)
            await writes.emit(EventKind.UNBOUND, why, binding.sandbox_id, binding=binding)
            return True

    def exclusive(
        self, *, key: SessionKey, wait_s: float | None = None
    ) -> AbstractAsyncContextManager[Held]:
        """Hold the session's lock around work of your own; `.snapshot` is what Redis knew then.

        The block's task is cancelled if the lock is lost, which becomes LockLost.
        """
        return self._locks.hold(key, wait_s=wait_s)

    # Turns

    async def begin_turn(self, *, key: SessionKey) -> TurnState:
        """Take a reference on the session's turn. Not idempotent: end each one exactly once."""
        return await self._lease.begin(self.names.of(key))

    async def end_turn(self, *, key: SessionKey) -> TurnState:
        """Give a reference back. A turn that already lapsed is success. Shield it from the
        request's cancellation."""
        return await self._lease.end(self.names.of(key))

    async def consume_turn(self, *, key: SessionKey, wait_s: float | None = None) -> TurnState:
        """Before a use of the sandbox other than by `resolve`: once this returns, the turn keeps it.

        Idempotent; does nothing without a turn. Waits for a rebuild that is under way.
        """
        async with self._locks.hold(key, wait_s=wait_s, take_ticket=True):
            pass
        return await self.turn_state(key=key)

    async def turn_state(self, *, key: SessionKey) -> TurnState:
        """Does not prolong the lease."""
        return (await self._locks.look(key)).turn

    # A space's sessions

    async def mark_stale(
        self,
        *,
        tenant: str,
        space: str,
        why: str,
        rollout: Rollout = Rollout.NEXT_TURN,
        fresh: Callable[[Binding], bool] = lambda binding: False,
        wait_s: float = 2.0,
    ) -> StaleReport:
        """Declare the space's bound sandboxes stale; commit what changed before you call this.

        `fresh` picks those to leave alone (already on the new release, outside the rollout's
        share). Each session gets `wait_s`; one that fails is reported and the rest go on.
        Idempotent: call it again after failures.
        """
        if rollout is Rollout.NEW_SESSION:
            return StaleReport()
        return await mark_space_stale(
            self._scripts,
            self.names,
            tenant=tenant,
            space=space,
            why=why,
            fresh=fresh,
            wait_s=wait_s,
        )

    async def bound_sessions(
        self, *, tenant: str, space: str | None = None
    ) -> AsyncIterator[SessionKey]:
        """Every session of a tenant or space that has a binding, in no order."""
        async for batch in scan(self._scripts, self.names, tenant, space):
            for key in batch:
                yield key

    async def bindings(self, *, keys: Sequence[SessionKey]) -> list[StoredBinding | None]:
        """The bindings of many sessions, in order; None for an unbound one. All or Unavailable."""
        return await read_bindings(self._scripts, self.names, keys)

    async def store_since(self, *, now: float) -> float:
        """Since when this store has existed (Unix seconds): `now` if it was never seen before or was
        flushed since, for then a missing binding proves nothing yet."""
        return float(await self._scripts.set_once(self.names.since, repr(now)))


async def _destroy(operation: Operation, why: Why) -> bool:
    held = operation.held
    stored = held.snapshot.stored
    binding: Binding | None = None
    doomed: list[str] = []
    with suppress(BindingDamaged):
        binding = held.snapshot.binding(held.key)
    if binding is None:
        doomed = [info.id for info in await operation.owned()]
    elif binding.backend == operation.backend:
        doomed = [binding.sandbox_id]
    for sandbox_id in doomed:
        await operation.delete(sandbox_id)
        await operation.emit(EventKind.DESTROYED, why, sandbox_id, binding=binding)
    if stored is not None:
        await operation.unbind(stored)
        if not doomed:
            await operation.emit(
                EventKind.UNBOUND, why, binding.sandbox_id if binding else "", binding=binding
            )
    return bool(doomed) or stored is not None
