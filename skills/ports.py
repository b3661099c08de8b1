"""What skills needs of the models above it, and what it tells them.

It gets console's models through foreign keys and its wishes through the two lists of listeners
below; it never imports console.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sandboxes.client import SandboxClient

__all__ = [
    "SYSTEM",
    "Actor",
    "BackendPort",
    "Event",
    "SpacePort",
    "Switch",
    "announce",
    "on_event",
    "on_switch",
]


class BackendPort(Protocol):
    """console.fleet.models.Backend, as a build sees it."""

    pk: str
    name: str
    secrets: dict[str, Any]

    @property
    def fingerprint(self) -> str: ...

    def require_open(self) -> None:
        """Conflict, with the mend, while nothing new may be started on it."""

    async def open_client(self) -> SandboxClient: ...

    async def open_account(self, fingerprint: str) -> SandboxClient | None:
        """Of the account with this fingerprint; None if there are no credentials for it."""


class SpacePort(Protocol):
    """console.tenants.models.Space, as a build sees it."""

    pk: str
    slug: str
    tenant_id: str
    backend_id: str
    base_template: str
    current_release: Any
    current_release_id: str | None
    candidate_release: Any
    candidate_release_id: str | None
    rollout_percent: int
    rollout_sessions: list[str]
    idle_timeout_s: int

    @property
    def backend(self) -> BackendPort: ...

    def require_kept(self) -> None:
        """Conflict if it is being deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who acts: a person, an API key or the product itself, and from where."""

    name: str
    user_id: int | None = None
    address: str | None = None
    request_id: str = ""


SYSTEM = Actor(name="system")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something for the audit log. `action` is noun and verb; `details` holds no secret."""

    action: str
    actor: Actor
    tenant_id: str
    target: str
    space_id: str | None = None
    outcome: str = "done"
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """What new sessions of a space get has changed. `session_ids` None means that all of its running
    sessions are concerned, else only those named (by the platform's own ids)."""

    space_id: str
    reason: str
    session_ids: tuple[str, ...] | None = None


on_event: list[Callable[[Event], object]] = []
"""Called in the transaction of what happened; an exception undoes it."""

on_switch: list[Callable[[Switch], object]] = []
"""Called after the commit of a switch, from a worker, to mark the running sessions stale. Called again
until it returns, so it must be idempotent."""


def announce(event: Event) -> None:
    for listener in on_event:
        listener(event)
