"""A sandbox that a client makes for itself, under the session of its choice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sandboxes.errors import Conflict, SandboxError
from sandboxes.sessions.binding import StoredBinding
from sandboxes.sessions.events import EventKind, Why
from sandboxes.sessions.plan import SandboxPlan
from sandboxes.sessions.resolve import Resolution
from sandboxes.types import Sandbox, SandboxState

__all__ = ["Introduction", "Make", "SessionTaken"]

Make = Callable[[SandboxPlan], Awaitable[Sandbox]]


class SessionTaken(Conflict):
    """The session has a living sandbox of its own; `sandbox_id` names it."""

    retryable = False

    def __init__(self, message: str, *, sandbox_id: str) -> None:
        super().__init__(message, op="create")
        self.sandbox_id = sandbox_id


@dataclass(slots=True, kw_only=True)
class Introduction(Resolution):
    async def introduce(self, make: Make) -> Sandbox:
        stored = self.held.snapshot.stored
        if stored is not None:
            await self._require_gone(stored)
        plan = await self.plan()
        sandbox = await make(plan)
        try:
            binding = self._new_binding(plan, sandbox, started_at=None)
            winner = await self.held.complete(
                self._bind_and_tell(binding, sandbox, EventKind.CREATED, Why.NEW, claim=False)
            )
            if winner is not None:
                raise self.held.lost_error()
        except SandboxError as error:
            # Nobody but us knows of it, and the client is told of no sandbox.
            await self.discard(sandbox.id, Why.UNUSABLE, error)
            raise
        return sandbox

    async def _require_gone(self, stored: StoredBinding) -> None:
        binding = stored.parse(self.held.key)
        if binding.backend != self.backend:
            await self._forget(stored, binding, Why.BACKEND_CHANGED)
            return
        try:
            info = await self.client.get(binding.sandbox_id)
        except SandboxError as error:
            if not error.gone:
                raise
        else:
            if info.state is not SandboxState.TERMINAL:
                raise SessionTaken(
                    f"Session {self.held.key.session} has a sandbox already ({binding.sandbox_id}); "
                    "connect to that one, or kill it first.",
                    sandbox_id=binding.sandbox_id,
                )
        await self._forget(stored, binding, Why.GONE)
