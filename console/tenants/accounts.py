"""What happens to a person's account, written where those who answer for them can read it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest

from console.audit.models import Outcome
from console.audit.services import Actor, Line, record_all
from console.tenants.models import Membership, User

__all__ = ["address_of", "record_account"]


def address_of(request: HttpRequest) -> str | None:
    """Where the request came from, as far as SKILLYARD_TRUSTED_PROXIES tell; None over a socket. An IPv4
    address that a socket for both wraps in IPv6 is itself."""
    try:
        found = ipaddress.ip_address(str(request.META.get("REMOTE_ADDR", "")).partition("%")[0])
    except ValueError:
        return None
    return str((found.version == 6 and found.ipv4_mapped) or found)


def record_account(
    *,
    actor: Actor,
    user: User | None,
    action: str,
    outcome: str = Outcome.DONE,
    details: Mapping[str, Any] | None = None,
) -> None:
    """One line for each tenant that `user` has a role in; for one without, or for a name that nobody has
    (None), one in the platform's own log."""
    tenants: list[str | None] = []
    if user is not None:
        rows = Membership.objects.filter(user=user).order_by("tenant")
        tenants += rows.values_list("tenant", flat=True).distinct()
    record_all(
        [
            Line(
                actor=actor,
                action=action,
                target="" if user is None else user.get_username(),
                tenant_id=tenant_id,
                outcome=outcome,
                details=details or {},
            )
            for tenant_id in tenants or [None]
        ]
    )
