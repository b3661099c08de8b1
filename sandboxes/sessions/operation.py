"""What resolve and destroy share: the writes and deletes of one operation that holds the lock."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from sandboxes.client import SandboxClient
from sandboxes.errors import Conflict, Internal, NotFound, SandboxError
from sandboxes.sessions.binding import Binding, Cipher, Stale, StoredBinding
from sandboxes.sessions.events import EventKind, OnEvent, SessionEvent, Why
from sandboxes.sessions.keys import ownership_tags
from sandboxes.sessions.lock import Held
from sandboxes.types import ListFilter, SandboxInfo, SandboxState

__all__ = ["Operation", "SessionDeleted", "SessionExists", "Writes"]

log = logging.getLogger(__name__)

SessionExists = Callable[[], Awaitable[bool]]
"""Is the session still there? Asked before and after a sandbox is made; any exception stops that."""

_EVENT_TIMEOUT_S = 5.0


class SessionDeleted(NotFound):
    """The conversation was deleted; it gets no sandbox any more."""


@dataclass(slots=True, kw_only=True)
class Writes:
    """What is written of one session, under its lock: its binding and its history."""

    held: Held
    backend: str
    cipher: Cipher
    on_event: OnEvent | None
    actor: str
    turn_ttl_ms: int

    async def emit(
        self,
        kind: EventKind,
        why: Why,
        sandbox_id: str,
        *,
        binding: Binding | None = None,
        detail: str = "",
    ) -> None:
        if self.on_event is None:
            return
        event = SessionEvent(
            kind=kind,
            key=self.held.key,
            sandbox_id=sandbox_id,
            backend=self.backend,
            why=why,
            at=datetime.now(UTC),
            actor=self.actor,
            detail=detail,
            binding=binding,
        )
        try:
            async with asyncio.timeout(_EVENT_TIMEOUT_S):
                await self.on_event(event)
        except Exception:
            log.exception("the %s of session %s could not be recorded", kind, self.held.key)

    async def bind(
        self, binding: Binding, token: str | None, *, guard_turn: bool
    ) -> StoredBinding | None:
        """None if bound, else the winner of the race. LockLost if the lock is gone; after
        Unavailable the outcome is unknown."""
        keys = self.held.keys
        reply = await self.held.scripts.run(
            "bind",
            [keys.lock, keys.binding, keys.token, keys.stale, keys.turn],
            [
                self.held.owner,
                binding.to_json(),
                self.cipher.encrypt(token) if token else "",
                self.turn_ttl_ms if guard_turn else 0,
            ],
        )
        if reply[0] == "bound":
            return None
        if reply[0] == "lost":
            raise self.held.lost_error()
        return StoredBinding(reply[1], reply[2])

    async def unbind(self, stored: StoredBinding) -> None:
        """Compare and delete; already unbound is success. Conflict if it is bound anew."""
        keys = self.held.keys
        outcome = await self.held.scripts.run(
            "unbind",
            [keys.lock, keys.binding, keys.token, keys.stale],
            [self.held.owner, stored.document],
        )
        if outcome == "lost":
            raise self.held.lost_error()
        if outcome == "changed":
            raise Conflict(
                f"Session {self.held.key} was bound to another sandbox meanwhile; try again.",
                op="unbind",
                retry_after_s=1.0,
            )

    async def mark_stale(self, binding: Binding, why: str) -> None:
        keys = self.held.keys
        stale = Stale(at=datetime.now(UTC), why=why)
        await self.held.scripts.run(
            "mark_stale", [keys.binding, keys.stale], [binding.to_json(), stale.to_json()]
        )


@dataclass(slots=True, kw_only=True)
class Operation(Writes):
    """One call under the session's lock, with the backend at hand."""

    client: SandboxClient

    async def owned(self) -> list[SandboxInfo]:
        """Every sandbox with this session's tags, oldest first. Internal if the provider returns
        one that was not asked for: nothing in its answer can be trusted then."""
        tags = ownership_tags(self.held.key, self.backend)
        found: list[SandboxInfo] = []
        async for info in self.client.list(ListFilter(metadata=tags)):
            if any(info.metadata.get(tag) != value for tag, value in tags.items()):
                raise Internal(
                    "The backend listed a sandbox that does not carry the tags asked for; "
                    "its filter can't be trusted, so nothing was claimed.",
                    op="list",
                    detail=f"sandbox {info.id}",
                )
            if info.id and info.state is not SandboxState.TERMINAL:
                found.append(info)
        return sorted(found, key=_oldest_first)

    async def delete(self, sandbox_id: str) -> None:
        """Already gone is success; any other error is raised, its outcome unknown."""
        try:
            await self.client.delete(sandbox_id)
        except SandboxError as error:
            if not error.gone:
                raise

    async def discard(self, sandbox_id: str, why: Why, failure: BaseException) -> None:
        """Delete a sandbox of our own making that never was bound, and don't hide `failure`.

        Outlives the caller's cancellation, but not the lock: then the next holder may have claimed it.
        """
        if self.held.lost:
            return
        try:
            await self.held.complete(self._delete_and_tell(sandbox_id, why))
        except SandboxError as error:
            failure.add_note(f"Sandbox {sandbox_id} could not be deleted: {error}")
            log.warning("sandbox %s is left to the reaper: %s", sandbox_id, error)

    async def _delete_and_tell(self, sandbox_id: str, why: Why) -> None:
        await self.delete(sandbox_id)
        await self.emit(EventKind.DESTROYED, why, sandbox_id)


def _oldest_first(info: SandboxInfo) -> tuple[bool, float, str]:
    started = info.started_at
    return (started is None, started.timestamp() if started else 0.0, info.id)
