"""The five steps from a session to its sandbox, all under the session's lock.

1 read the binding, 2 rebuild if stale and allowed, 3 connect if bound, 4 claim by tags, 5 create.
Only an error that says `gone` may cost a session its binding; every other one keeps it.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from sandboxes.errors import Conflict, Internal, SandboxError
from sandboxes.sessions.binding import Binding, StoredBinding
from sandboxes.sessions.connect import connect_bound, stored_token
from sandboxes.sessions.events import EventKind, Why
from sandboxes.sessions.keys import TAG_POLICY, TAG_RELEASE
from sandboxes.sessions.operation import Operation, SessionDeleted, SessionExists
from sandboxes.sessions.plan import SandboxPlan
from sandboxes.types import Sandbox, SandboxInfo

__all__ = ["Outcome", "Plan", "Prepare", "Resolution", "Resolved"]

log = logging.getLogger(__name__)

Plan = Callable[[], Awaitable[SandboxPlan]]
"""What a new sandbox would be now; Conflict while none may be made. Called before a stale one is given up, when
the session is unbound, and once more after binding, so it must read anew on every call."""


Prepare = Callable[[Sandbox], Awaitable[None]]
"""Makes a sandbox fit for its session before anybody can use it. Must be repeatable: one that was
prepared, and then lost its binding, is prepared again when it is claimed."""


class Outcome(enum.StrEnum):
    CONNECTED = "connected"
    CLAIMED = "claimed"
    CREATED = "created"
    REBUILT = "rebuilt"
    """Created in place of one that was stale or gone: its files are new too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """`stale` says that an update waits for the session's next turn; `fell_back` that the sandbox
    stands on the base template because the release lies in another provider account."""

    sandbox: Sandbox
    outcome: Outcome
    binding: Binding
    stale: bool = False

    @property
    def fell_back(self) -> bool:
        return self.binding.fell_back


@dataclass(slots=True, kw_only=True)
class Resolution(Operation):
    plan: Plan
    session_exists: SessionExists | None
    prepare: Prepare | None
    _replaced: Why | None = None
    """Why the session lost the sandbox that it was bound to, if this call found it bound."""
    _destroyed: set[str] = field(default_factory=set)

    async def run(self) -> Resolved:
        stored = self.held.snapshot.stored
        if stored is not None:
            resolved = await self._bound(stored)
            if resolved is not None:
                return resolved
        await self._require_session()
        plan = await self.plan()
        return await self._claim(plan) or await self._create(plan)

    async def _bound(self, stored: StoredBinding) -> Resolved | None:
        """The bound sandbox, or None once the session is unbound."""
        binding = stored.parse(self.held.key)
        if binding.backend != self.backend:
            # Its provider can't be reached from here; its own reaper collects it.
            await self._forget(stored, binding, Why.BACKEND_CHANGED)
            return None
        stale = self.held.snapshot.stale
        may_rebuild = stale is not None and self.held.snapshot.turn.may_rebuild
        if stale is not None and may_rebuild and await self._may_make():
            await self._destroy_stale(stored, binding, stale.why)
            return None
        sandbox = await self._connect(stored, binding)
        if sandbox is None:
            await self._forget(stored, binding, Why.GONE)
            return None
        return Resolved(
            sandbox=sandbox,
            outcome=Outcome.CONNECTED,
            binding=binding,
            stale=stale is not None,
        )

    async def _may_make(self) -> bool:
        """Whether a new sandbox could be made now. Until it can, and as long as that can't be told, a stale one
        is better than none, and the turn keeps its ticket."""
        self.held.restore_ticket = self.held.snapshot.turn.ticket
        try:
            await self.plan()
        except Conflict as error:
            log.info("session %s keeps its stale sandbox: %s", self.held.key, error)
            return False
        except SandboxError:
            raise
        except Exception:
            log.exception("session %s keeps its stale sandbox", self.held.key)
            return False
        self.held.restore_ticket = False
        return True

    async def _destroy_stale(self, stored: StoredBinding, binding: Binding, why: str) -> None:
        # The old one goes first: unbound but alive, it would be claimed again by its tags.
        # Until it is gone the turn keeps its ticket, so that the next call can try again.
        self.held.restore_ticket = self.held.snapshot.turn.ticket
        await self.delete(binding.sandbox_id)
        self._destroyed.add(binding.sandbox_id)
        await self.unbind(stored)
        self.held.restore_ticket = False
        self._replaced = Why.STALE
        await self.emit(
            EventKind.DESTROYED, Why.STALE, binding.sandbox_id, binding=binding, detail=why
        )

    async def _forget(self, stored: StoredBinding, binding: Binding, why: Why) -> None:
        await self.unbind(stored)
        self._replaced = why
        await self.emit(EventKind.UNBOUND, why, binding.sandbox_id, binding=binding)

    async def _connect(self, stored: StoredBinding, binding: Binding) -> Sandbox | None:
        """None if it is gone for good."""
        token = stored_token(self.cipher, stored)
        sandbox = await connect_bound(self.client, binding, token)
        if sandbox is None:
            return None
        if sandbox.traffic_token and sandbox.traffic_token != token:
            self.held.keep_token(stored.document, self.cipher.encrypt(sandbox.traffic_token))
        if sandbox.resumed:
            await self.emit(EventKind.RESUMED, Why.PAUSED, sandbox.id, binding=binding)
        return sandbox

    async def _require_session(self) -> None:
        if self.session_exists is not None and not await self.session_exists():
            raise SessionDeleted(
                f"Session {self.held.key} was deleted; start a new one.", op="resolve"
            )

    def _token_lost(self, plan: SandboxPlan, sandbox: Sandbox) -> bool:
        needed = not plan.policy.inbound and self.client.capabilities.inbound_token
        return needed and not sandbox.traffic_token

    # Step 4

    async def _claim(self, plan: SandboxPlan) -> Resolved | None:
        candidates = [info for info in await self.owned() if info.id not in self._destroyed]
        for position, info in enumerate(candidates):
            if self._replaced is Why.STALE and plan.drifted(info.metadata):
                # This turn is promised the new image; an old duplicate is as stale as the bound one.
                await self._delete_and_tell(info.id, Why.DUPLICATE)
                continue
            try:
                sandbox = await self.client.connect(info.id, timeout_s=plan.timeout.timeout_s)
            except SandboxError as error:
                if error.gone:
                    continue
                raise
            if self._token_lost(plan, sandbox):
                # Adopted it would answer 403 for ever, and 403 never replaces a binding.
                await self._delete_and_tell(info.id, Why.TOKEN_LOST)
                continue
            return await self._adopt(plan, info, sandbox, duplicates=candidates[position + 1 :])
        return None

    async def _adopt(
        self,
        plan: SandboxPlan,
        info: SandboxInfo,
        sandbox: Sandbox,
        *,
        duplicates: list[SandboxInfo],
    ) -> Resolved:
        if self.prepare is not None:
            await self.prepare(sandbox)
        release = info.metadata.get(TAG_RELEASE, "")
        binding = replace(
            self._new_binding(plan, sandbox, started_at=info.started_at),
            template=info.template_id or plan.template,
            policy_revision=info.metadata.get(TAG_POLICY, ""),
            release=release,
            fell_back=plan.fell_back and not release,
        )
        winner = await self.held.complete(
            self._bind_and_tell(
                binding, sandbox, EventKind.CLAIMED, self._replaced or Why.BINDING_LOST, claim=True
            )
        )
        if winner is not None:
            return await self._join(winner)
        for duplicate in duplicates:
            try:
                await self._delete_and_tell(duplicate.id, Why.DUPLICATE)
            except SandboxError as error:
                log.warning("sandbox %s is left to the reaper: %s", duplicate.id, error)
        stale = plan.drifted(info.metadata)
        if stale:
            await self.mark_stale(binding, "It was made from an older release or policy.")
        else:
            stale = await self._plan_moved(plan, binding)
        return Resolved(sandbox=sandbox, outcome=Outcome.CLAIMED, binding=binding, stale=stale)

    # Step 5

    async def _create(self, plan: SandboxPlan) -> Resolved:
        sandbox = await self.client.create(plan.request(self.held.key, self.backend))
        try:
            if self._token_lost(plan, sandbox):
                raise Internal(
                    "The backend gave no traffic token for a sandbox that is closed to inbound "
                    "traffic, so it can't be reached; check the backend's version.",
                    op="create",
                )
            if self.prepare is not None:
                await self.prepare(sandbox)
            await self._require_session()
        except BaseException as error:
            deleted = isinstance(error, SessionDeleted)
            why = Why.SESSION_DELETED if deleted else Why.UNUSABLE
            await self.discard(sandbox.id, why, error)
            raise
        binding = self._new_binding(plan, sandbox, started_at=None)
        rebuilt = self._replaced is not None
        # When Redis fails here nobody knows who is bound, so the sandbox stays: the next resolve
        # finds it by its tags, or the reaper does.
        winner = await self.held.complete(
            self._bind_and_tell(
                binding,
                sandbox,
                EventKind.REBUILT if rebuilt else EventKind.CREATED,
                self._replaced or Why.NEW,
                claim=False,
            )
        )
        if winner is not None:
            return await self._yield_to(winner, sandbox)
        return Resolved(
            sandbox=sandbox,
            outcome=Outcome.REBUILT if rebuilt else Outcome.CREATED,
            binding=binding,
            stale=await self._plan_moved(plan, binding),
        )

    def _new_binding(
        self, plan: SandboxPlan, sandbox: Sandbox, *, started_at: datetime | None
    ) -> Binding:
        now = datetime.now(UTC)
        return Binding(
            key=self.held.key,
            backend=self.backend,
            sandbox_id=sandbox.id,
            template=plan.template,
            policy_revision=str(plan.policy_revision),
            release=plan.release_id,
            fell_back=plan.fell_back,
            has_token=bool(sandbox.traffic_token),
            timeout_s=plan.timeout.timeout_s,
            bound_at=now,
            started_at=started_at or now,
        )

    async def _bind_and_tell(
        self, binding: Binding, sandbox: Sandbox, kind: EventKind, why: Why, *, claim: bool
    ) -> StoredBinding | None:
        winner = await self.bind(binding, sandbox.traffic_token, guard_turn=claim)
        if winner is None:
            await self.emit(kind, why, sandbox.id, binding=binding)
        return winner

    async def _plan_moved(self, plan: SandboxPlan, binding: Binding) -> bool:
        """Marks a binding stale if the space changed while its sandbox was made: whoever changed it
        may have marked the space's sessions before this one was among them."""
        try:
            moved = (await self.plan()).tags() != plan.tags()
            if moved:
                await self.mark_stale(binding, "The space changed while it was made.")
        except Exception:
            log.exception("session %s: can't tell whether its space changed", self.held.key)
            return False
        return moved

    async def _yield_to(self, winner: StoredBinding, ours: Sandbox) -> Resolved:
        # A winner that can't be read may be our own sandbox: then nothing is deleted.
        if winner.parse(self.held.key).sandbox_id != ours.id:
            await self.held.complete(self._delete_and_tell(ours.id, Why.LOST_RACE))
        return await self._join(winner)

    async def _join(self, winner: StoredBinding) -> Resolved:
        binding = winner.parse(self.held.key)
        sandbox = await self._connect(winner, binding)
        if sandbox is None:
            raise self.held.lost_error()
        return Resolved(sandbox=sandbox, outcome=Outcome.CONNECTED, binding=binding)
