"""A session's row and history, written as the session manager reports what happened.

The row is for people and reports; Redis alone decides which sandbox a session has.
"""

from __future__ import annotations

from django.utils import timezone

from console.fleet.models import Session, SessionEvent, SessionState
from console.policies.models import NetworkPolicyRevision
from sandboxes import sessions

__all__ = ["write_event", "write_note"]

_STATE_AFTER = {
    sessions.EventKind.CREATED: SessionState.ACTIVE,
    sessions.EventKind.CLAIMED: SessionState.ACTIVE,
    sessions.EventKind.REBUILT: SessionState.ACTIVE,
    sessions.EventKind.RESUMED: SessionState.ACTIVE,
    sessions.EventKind.UNBOUND: SessionState.LOST,
    sessions.EventKind.DESTROYED: SessionState.DESTROYED,
}


async def write_event(event: sessions.SessionEvent) -> None:
    """The hook of SessionManager. Creates the row with the session's first sandbox."""
    binding = event.binding
    values: dict[str, object] = {"state": _STATE_AFTER[event.kind], "used_at": timezone.now()}
    if event.kind is sessions.EventKind.DESTROYED:
        values["destroyed_at"] = timezone.now()
    elif binding is not None:
        values |= {
            "sandbox_id": binding.sandbox_id,
            "backend_id": binding.backend,
            "release_id": binding.release or None,
            "policy": await _policy(event.key.space, binding.policy_revision),
            "destroyed_at": None,
        }
    row, _ = await Session.objects.aupdate_or_create(
        space_id=event.key.space,
        session_id=event.key.session,
        defaults=values,
        create_defaults={**values, "backend_id": event.backend, "created_by": event.actor},
    )
    await write_note(
        session=row,
        kind=event.kind.value,
        reason=event.detail or event.why.value,
        actor=event.actor,
        sandbox_id=event.sandbox_id,
    )


async def write_note(
    *, session: Session, kind: str, reason: str = "", actor: str = "", sandbox_id: str = ""
) -> None:
    await SessionEvent.objects.acreate(
        session=session, kind=kind, reason=reason[:300], actor=actor, sandbox_id=sandbox_id
    )


async def _policy(space_id: str, number: str) -> NetworkPolicyRevision | None:
    if not number.isdigit():
        return None
    return await NetworkPolicyRevision.objects.filter(space=space_id, number=int(number)).afirst()
