"""Writing the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from console.audit.models import AuditEntry, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who acts: a person, an API key or the product itself, and from where."""

    name: str
    user_id: int | None = None
    address: str | None = None
    request_id: str = ""


SYSTEM = Actor(name="system")


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
