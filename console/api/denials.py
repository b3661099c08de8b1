"""Refused access in the audit log: who asked for what, in the asker's own tenant, never in the other's."""

from __future__ import annotations

import time
from collections import OrderedDict

from console.api.journal import journal
from console.audit.models import Outcome
from console.audit.services import Line
from console.tenants.access import Action, Principal

__all__ = ["note_denied"]

_QUIET_S = 60.0
_MAX_NOTED = 4096

_noted: OrderedDict[tuple[str, str, str], float] = OrderedDict()


async def note_denied(principal: Principal, action: Action | None, path: str, status: int) -> None:
    """Once a minute for the same caller, right and path, so that a loop can't flood the log."""
    key = (principal.actor.name, str(action or ""), path)
    now = time.monotonic()
    if now - _noted.get(key, -_QUIET_S) < _QUIET_S:
        return
    _noted[key] = now
    while len(_noted) > _MAX_NOTED:
        _noted.popitem(last=False)
    tenants = sorted({grant.tenant_id for grant in principal.grants})
    await journal().note(
        Line(
            actor=principal.actor,
            action="access.denied",
            target=path,
            tenant_id=tenants[0] if tenants else None,
            outcome=Outcome.DENIED,
            details={"right": str(action or ""), "status": status},
        )
    )
