"""Writing the audit log."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from console.audit.models import AuditChain, AuditEntry, Outcome
from skills.ports import SYSTEM, Actor, Event

__all__ = [
    "SYSTEM",
    "Actor",
    "Line",
    "Verified",
    "record",
    "record_all",
    "record_event",
    "verify",
    "verify_all",
]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One entry to be written. `details` must hold no secret."""

    actor: Actor
    action: str
    target: str = ""
    tenant_id: str | None = None
    space_id: str | None = None
    outcome: str = Outcome.DONE
    details: Mapping[str, Any] = field(default_factory=dict)
    at: datetime = field(default_factory=timezone.now)


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
    line = Line(
        actor=actor,
        action=action,
        target=target,
        tenant_id=tenant_id,
        space_id=space_id,
        outcome=outcome,
        details=details or {},
    )
    return record_all([line])[0]


@transaction.atomic
def record_all(lines: Sequence[Line]) -> list[AuditEntry]:
    """Append many at once: a few queries for each tenant, however many there are."""
    by_chain: dict[str, list[Line]] = {}
    for line in lines:
        by_chain.setdefault(line.tenant_id or "", []).append(line)
    entries: list[AuditEntry] = []
    # In one order, so that two writers never wait for each other.
    for key in sorted(by_chain):
        AuditChain.objects.get_or_create(key=key)
        chain = AuditChain.objects.select_for_update().get(key=key)
        added = [_append(chain, line) for line in by_chain[key]]
        AuditEntry.objects.bulk_create(added)
        chain.save(update_fields=["head", "length"])
        entries += added
    return entries


def _append(chain: AuditChain, line: Line) -> AuditEntry:
    entry = AuditEntry(
        tenant_id=line.tenant_id,
        space_id=line.space_id,
        user_id=line.actor.user_id,
        actor=line.actor.name,
        action=line.action,
        target=line.target[:200],
        outcome=line.outcome,
        # As the database will give it back, so that the hash can be checked later.
        details=json.loads(json.dumps(dict(line.details), default=str)),
        address=line.actor.address,
        request_id=line.actor.request_id,
        created_at=line.at,
        chain=chain,
        number=chain.length + 1,
    )
    entry.hash = _hash(chain.head, entry)
    chain.head, chain.length = entry.hash, entry.number
    return entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """`broken` is the number of the first entry that does not fit, or 0."""

    chain: str
    entries: int
    broken: int = 0
    reason: str = ""


def verify(chain: AuditChain) -> Verified:
    """Compute every hash of a chain anew, up to its end as it was read. Reads only."""
    before, expected = "", 1
    # What is appended meanwhile comes after that end.
    entries = chain.entries.filter(number__lte=chain.length).order_by("number")
    for entry in entries.iterator(chunk_size=500):
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


def verify_all() -> list[Verified]:
    """Verify each chain, and write down in its row when that was and what was found."""
    found = []
    for chain in AuditChain.objects.order_by("key"):
        result = verify(chain)
        AuditChain.objects.filter(pk=chain.pk).update(
            verified_at=timezone.now(), broken=result.broken
        )
        if result.broken:
            log.error("the audit log of %s is broken: %s", chain, result.reason)
        found.append(result)
    return found


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
