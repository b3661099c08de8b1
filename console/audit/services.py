"""Writing the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from console.audit.models import AuditEntry, Outcome
from skills.ports import SYSTEM, Actor, Event

__all__ = ["SYSTEM", "Actor", "record", "record_event"]


def record(
    *,
    actor: Actor,
    action: str,
    target: str = "",
    tenant_id: str | None = None,
    space_id: str | None = None,
    outcome: str = Outcome.DONE,
    details: Mapping[str, Any] | None = None,
) -> AuditEntry:
    """Append one entry, in the caller's transaction. `details` must hold no secret."""
    return AuditEntry.objects.create(
        tenant_id=tenant_id,
        space_id=space_id,
        user_id=actor.user_id,
        actor=actor.name,
        action=action,
        target=target[:200],
        outcome=outcome,
        details=dict(details or {}),
        address=actor.address,
        request_id=actor.request_id,
    )


def record_event(event: Event) -> None:
    """What skills announces (`skills.ports.on_event`)."""
    record(
        actor=event.actor,
        action=event.action,
        target=event.target,
        tenant_id=event.tenant_id,
        space_id=event.space_id,
        outcome=event.outcome,
        details=event.details,
    )
