"""A session's history, as it happens."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from sandboxes.sessions.binding import Binding
from sandboxes.sessions.keys import SessionKey

__all__ = ["EventKind", "OnEvent", "SessionEvent", "Why"]


class EventKind(enum.StrEnum):
    CREATED = "created"
    CLAIMED = "claimed"
    REBUILT = "rebuilt"
    RESUMED = "resumed"
    UNBOUND = "unbound"
    """The binding was forgotten; the sandbox was not touched."""
    DESTROYED = "destroyed"


class Why(enum.StrEnum):
    NEW = "new"
    STALE = "stale"
    GONE = "gone"
    PAUSED = "paused"
    BACKEND_CHANGED = "backend_changed"
    ACCOUNT_LEFT = "account_left"
    BINDING_LOST = "binding_lost"
    TOKEN_LOST = "token_lost"  # noqa: S105 (a name, not a secret)
    DUPLICATE = "duplicate"
    LOST_RACE = "lost_race"
    SESSION_DELETED = "session_deleted"
    REQUESTED = "requested"
    UNUSABLE = "unusable"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEvent:
    """`binding` is the one made or removed, if any; `detail` is a sentence for people."""

    kind: EventKind
    key: SessionKey
    sandbox_id: str
    backend: str
    why: Why
    at: datetime
    actor: str = ""
    detail: str = ""
    binding: Binding | None = None


OnEvent = Callable[[SessionEvent], Awaitable[None]]
"""Awaited under the session's lock, so in order. It cannot fail the operation: an exception is
logged, and so is one that takes too long and is cancelled."""
