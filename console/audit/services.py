"""Writing the audit log."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from console.audit.models import AuditChain, AuditEntry, Outcome
from skills.ports import SYSTEM, Actor, Event

__all__ = ["SYSTEM", "Actor", "Verified", "record", "record_event", "verify"]


@transaction.atomic
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
    AuditChain.objects.get_or_create(key=tenant_id or "")
    chain = AuditChain.objects.select_for_update().get(key=tenant_id or "")
    entry = AuditEntry(
        tenant_id=tenant_id,
        space_id=space_id,
        user_id=actor.user_id,
        actor=actor.name,
        action=action,
        target=target[:200],
        outcome=outcome,
        # As the database will give it back, so that the hash can be checked later.
        details=json.loads(json.dumps(dict(details or {}), default=str)),
        address=actor.address,
        request_id=actor.request_id,
        chain=chain,
        number=chain.length + 1,
    )
    entry.hash = _hash(chain.head, entry)
    entry.save(force_insert=True)
    chain.head, chain.length = entry.hash, entry.number
    chain.save(update_fields=["head", "length"])
    return entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """`broken` is the number of the first entry that does not fit, or 0."""

    chain: str
    entries: int
    broken: int = 0
    reason: str = ""


def verify(chain: AuditChain) -> Verified:
    """Compute every hash of a chain anew. Reads only."""
    before, expected = "", 1
    for entry in chain.entries.order_by("number").iterator(chunk_size=500):
        if entry.number != expected:
            reason = f"entry {expected} is missing"
            return Verified(chain=str(chain), entries=expected - 1, broken=expected, reason=reason)
        if entry.hash != _hash(before, entry):
            reason = f"entry {expected} was changed after it was written"
            return Verified(chain=str(chain), entries=expected - 1, broken=expected, reason=reason)
        before, expected = entry.hash, expected + 1
    if (chain.length, chain.head) != (expected - 1, before):
        reason = f"the last {chain.length - expected + 1} entries are missing"
        return Verified(chain=str(chain), entries=expected - 1, broken=expected, reason=reason)
    return Verified(chain=str(chain), entries=expected - 1)


def _hash(before: str, entry: AuditEntry) -> str:
    return hashlib.sha256(f"{before}\n{entry.content()}".encode()).hexdigest()


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
