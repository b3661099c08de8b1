"""Too many wrong passwords or codes: who has to wait, for how long, and who may lift it.

django-axes counts by user name and address together, so that a stranger who guesses can't keep the owner
out from elsewhere. An address that guesses at many names has to wait as a whole.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from axes.handlers.database import AxesDatabaseHandler
from axes.handlers.proxy import AxesProxyHandler
from axes.models import AccessAttempt
from django.conf import settings
from django.contrib.auth.signals import user_login_failed
from django.db.models import Max, QuerySet, Sum
from django.http import HttpRequest
from django.utils import timezone

from console.tenants.accounts import address_of

__all__ = ["Handler", "Lock", "count_failure", "is_locked", "lift", "locks", "network_of", "wait_s"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    username: str
    address: str | None
    until: datetime


def network_of(request: HttpRequest) -> str | None:
    """What counts as one address: of IPv6 the /64, which is one household's or one server's."""
    address = address_of(request)
    if address is None or ":" not in address:
        return address
    return str(ipaddress.ip_network(f"{address}/64", strict=False).network_address)


class Handler(AxesDatabaseHandler):  # type: ignore[misc]
    """AXES_HANDLER: locks an address out as a whole after SIGN_IN_ADDRESS_FAILURES."""

    def is_locked(self, request: HttpRequest, credentials: dict[str, Any] | None = None) -> bool:
        if super().is_locked(request, credentials):
            return True
        rows = _recent().filter(ip_address=network_of(request))
        return _failures(rows) >= settings.SIGN_IN_ADDRESS_FAILURES


def is_locked(request: HttpRequest, username: str) -> bool:
    return not AxesProxyHandler.is_allowed(request, {"username": username})


def count_failure(request: HttpRequest, username: str) -> bool:
    """A wrong second step counts as a wrong password does. True if that was one too many."""
    user_login_failed.send(sender=__name__, credentials={"username": username}, request=request)
    return bool(getattr(request, "axes_locked_out", False))


def wait_s(request: HttpRequest, username: str) -> tuple[int, bool]:
    """In how many seconds the next try is allowed, at the latest; and whether the address has to wait for
    every name, not for this one."""
    rows = _recent().filter(ip_address=network_of(request))
    own = rows.filter(username=username)
    by_name = _failures(own) >= settings.AXES_FAILURE_LIMIT
    last = (own if by_name else rows).aggregate(last=Max("attempt_time"))["last"] or timezone.now()
    left = last + settings.AXES_COOLOFF_TIME - timezone.now()
    return max(1, round(left.total_seconds())), not by_name


def locks() -> list[Lock]:
    """All that hold now on a name, be it anybody's or not."""
    rows = (
        _recent()
        .order_by("username", "ip_address")
        .values("username", "ip_address")
        .annotate(total=Sum("failures_since_start"), last=Max("attempt_time"))
        .filter(total__gte=settings.AXES_FAILURE_LIMIT)
    )
    return [
        Lock(
            username=row["username"],
            address=row["ip_address"],
            until=row["last"] + settings.AXES_COOLOFF_TIME,
        )
        for row in rows
    ]


def lift(username: str) -> int:
    """Forget all wrong tries at this name; how many rows there were."""
    count, _by_model = AccessAttempt.objects.filter(username=username).delete()
    return int(count)


def _failures(rows: QuerySet[Any]) -> int:
    return rows.aggregate(total=Sum("failures_since_start"))["total"] or 0


def _recent() -> QuerySet[Any]:
    since = timezone.now() - settings.AXES_COOLOFF_TIME
    return AccessAttempt.objects.filter(attempt_time__gte=since)  # type: ignore[no-any-return]
