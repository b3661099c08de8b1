"""Tests that use the fleet's async services on the thread that has the test's database."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any

from asgiref.sync import async_to_sync

from console.audit.services import Actor
from console.fleet import sessions
from console.fleet.models import Session, SessionEvent
from console.fleet.runtime import Runtime
from console.tenants.models import Space

__all__ = ["ALICE", "history", "in_loop", "resolve", "row_of"]

ALICE = Actor(name="alice")


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Turns an async test into a plain one. Django's own bridge keeps its queries on this thread, so
    that they are part of the test's transaction."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async_to_sync(test)(*args, **kwargs)

    return run


async def resolve(runtime: Runtime, space: Space, session_id: str = "talk") -> sessions.LiveSession:
    return await sessions.resolve(runtime=runtime, space=space, session_id=session_id, actor=ALICE)


async def row_of(space: Space, session_id: str = "talk") -> Session:
    return await Session.objects.aget(space=space, session_id=session_id)


async def history(space: Space, session_id: str = "talk") -> list[tuple[str, str]]:
    """(kind, reason), oldest first."""
    events = SessionEvent.objects.filter(session__space=space, session__session_id=session_id)
    return [(event.kind, event.reason) async for event in events.order_by("pk")]
