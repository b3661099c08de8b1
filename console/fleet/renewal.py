"""Waking a session by hand, and giving it a new sandbox by hand."""

from __future__ import annotations

from console.audit.services import Actor
from console.fleet import reasons
from console.fleet.history import change_state
from console.fleet.models import GATEWAY_ORIGIN, Session, SessionState
from console.fleet.runtime import Runtime
from console.fleet.sessions import resolve, session_key
from sandboxes.errors import Conflict, NotFound, Unavailable
from sandboxes.sessions import Outcome, Rollout

__all__ = ["rebuild", "resume"]


async def resume(*, runtime: Runtime, session: Session, actor: Actor) -> None:
    """Wake the session's sandbox where it was paused. Idempotent; NotFound if it is gone."""
    client = await runtime.client(session.space.backend)
    sandbox = await runtime.sessions.lookup(
        key=session_key(session.space, session.session_id),
        client=client,
        backend=session.space.backend_id,
    )
    if sandbox is None:
        await change_state(
            session=session, state=SessionState.LOST, kind="lost", reason=reasons.GONE
        )
        raise NotFound(
            "The session's sandbox is gone, so there is nothing to wake; its next call gets a new one.",
            op="resume",
        )
    await change_state(
        session=session,
        state=SessionState.ACTIVE,
        kind="resumed",
        reason=reasons.REQUESTED,
        actor=actor.name,
    )


async def rebuild(*, runtime: Runtime, session: Session, actor: Actor) -> bool:
    """Put a new sandbox, of the space's present release and policy, in the place of this one: its files and
    processes go, its attachments come again.

    False if a turn is in flight, which keeps its sandbox: the next turn then begins with the new one.
    Conflict for a sandbox that a client of the gateway holds on to.
    """
    if session.created_by.startswith(f"{GATEWAY_ORIGIN},"):
        raise Conflict(
            "A client of the gateway made this sandbox for itself and holds on to it by its id, so nothing "
            "can be put in its place; let that client end it, or destroy it.",
            op="rebuild",
        )
    space = session.space
    report = await runtime.sessions.mark_stale(
        tenant=space.tenant_id,
        space=space.pk,
        why=reasons.ASKED,
        rollout=Rollout.NEXT_TURN,
        fresh=lambda binding: binding.key.session != session.session_id,
    )
    if any(failure.session == session.session_id for failure in report.failures):
        raise Unavailable(
            "The session could not be marked for its rebuild; try again in a moment.", op="rebuild"
        )
    turn = await runtime.sessions.turn_state(key=session_key(space, session.session_id))
    if turn.active:
        return False
    live = await resolve(runtime=runtime, space=space, session_id=session.session_id, actor=actor)
    return live.resolved.outcome in (Outcome.REBUILT, Outcome.CREATED)
