"""A session's row and history, written as the session manager reports what happened.

The row is for people and reports; Redis alone decides which sandbox a session has.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from console.fleet import reasons
from console.fleet.models import Backend, Session, SessionEvent, SessionState
from console.policies.models import NetworkPolicyRevision
from console.tenants.models import Space
from sandboxes import sessions
from sandboxes.sessions import EventKind, Why

__all__ = ["binding_values", "change_state", "change_states", "write_event", "write_note"]

_HAS_SANDBOX = {EventKind.CREATED, EventKind.CLAIMED, EventKind.REBUILT, EventKind.RESUMED}
_ENDS_SESSION = {Why.REQUESTED, Why.SESSION_DELETED}


async def write_event(event: sessions.SessionEvent) -> None:
    """The hook of SessionManager. Creates the row with the session's first sandbox; nothing is written for
    a space that is gone."""
    if not await Space.objects.filter(pk=event.key.space).aexists():
        return
    state = _state_after(event)
    values: dict[str, Any] = {}
    if state is not None:
        values = {"state": state, "state_changed_at": timezone.now(), "used_at": timezone.now()}
        values["destroyed_at"] = timezone.now() if state == SessionState.DESTROYED else None
        if state == SessionState.ACTIVE and event.binding is not None:
            values |= await binding_values(event.binding)
    row, _ = await Session.objects.aupdate_or_create(
        space_id=event.key.space,
        session_id=event.key.session,
        defaults=values,
        create_defaults={
            "state": SessionState.LOST,
            "backend_id": event.backend,
            "created_by": event.actor,
            **values,
        },
    )
    await write_note(
        session=row,
        kind=event.kind.value,
        reason=event.detail or await _reason(event),
        actor=event.actor,
        sandbox_id=event.sandbox_id,
    )


async def change_state(
    *,
    session: Session,
    state: SessionState,
    kind: str,
    reason: str,
    actor: str = "",
    unless_changed_since: datetime | None = None,
) -> bool:
    """Move the row and write the line. False, with neither done, if the row is in that state already
    or something happened to the session after `unless_changed_since`."""
    rows = Session.objects.filter(pk=session.pk, sandbox_id=session.sandbox_id)
    if unless_changed_since is not None:
        rows = rows.filter(state_changed_at__lt=unless_changed_since)
    if not await rows.exclude(state=state).aupdate(state=state, state_changed_at=timezone.now()):
        return False
    session.state = state
    await write_note(
        session=session, kind=kind, reason=reason, actor=actor, sandbox_id=session.sandbox_id
    )
    return True


@transaction.atomic
def change_states(
    pks: Collection[str],
    *,
    state: SessionState,
    kind: str,
    reason: str,
    unless_changed_since: datetime,
) -> int:
    """`change_state` for many rows at once. Returns how many were moved."""
    rows = Session.objects.select_for_update().filter(
        pk__in=pks, state_changed_at__lt=unless_changed_since
    )
    moved = list(rows.exclude(state=state).values_list("pk", "sandbox_id"))
    Session.objects.filter(pk__in=[pk for pk, _ in moved]).update(
        state=state, state_changed_at=timezone.now()
    )
    SessionEvent.objects.bulk_create(
        SessionEvent(session_id=pk, kind=kind, reason=reason, sandbox_id=sandbox_id)
        for pk, sandbox_id in moved
    )
    return len(moved)


async def write_note(
    *, session: Session, kind: str, reason: str = "", actor: str = "", sandbox_id: str = ""
) -> None:
    await SessionEvent.objects.acreate(
        session=session, kind=kind, reason=reason[:300], actor=actor, sandbox_id=sandbox_id
    )


async def binding_values(binding: sessions.Binding) -> dict[str, Any]:
    """The columns of a row that follow from what Redis says."""
    return {
        "sandbox_id": binding.sandbox_id,
        "backend_id": binding.backend,
        "release_id": binding.release or None,
        "policy": await _policy(binding.key.space, binding.policy_revision),
    }


def _state_after(event: sessions.SessionEvent) -> SessionState | None:
    """None if the event is not about the sandbox that the session has: a duplicate was deleted, or one
    that never was bound."""
    if event.kind in _HAS_SANDBOX:
        return SessionState.ACTIVE
    if event.kind is EventKind.UNBOUND:
        return SessionState.LOST
    if event.why in _ENDS_SESSION:
        return SessionState.DESTROYED
    # Its successor is on the way; until it is there, the session has none but is not over.
    return SessionState.LOST if event.why in (Why.STALE, Why.ACCOUNT_LEFT) else None


async def _reason(event: sessions.SessionEvent) -> str:
    if event.why is not Why.GONE:
        return event.why.value
    backend = await Backend.objects.filter(pk=event.backend).afirst()
    can_pause = backend is None or backend.capabilities.get("pause", True)
    return reasons.GONE if can_pause else reasons.GONE_IDLE


async def _policy(space_id: str, number: str) -> NetworkPolicyRevision | None:
    if not number.isdigit():
        return None
    return await NetworkPolicyRevision.objects.filter(space=space_id, number=int(number)).afirst()
