"""Rows that ask a worker for a run: begun by one worker only, and not forgotten if the broker was away."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone

from console.fleet.models import ReconcileReport, Verification

__all__ = ["claim", "waiting"]

_PATIENCE = timedelta(seconds=30)
"""So long the message that went with the row may take."""


def claim(row: ReconcileReport | Verification) -> bool:
    """Whether the caller may begin it. Of several deliveries one may."""
    now = timezone.now()
    if not type(row).objects.filter(pk=row.pk, started_at=None).update(started_at=now):
        return False
    row.started_at = now
    return True


def waiting(
    model: type[ReconcileReport] | type[Verification], *, now: datetime | None = None
) -> list[str]:
    """Those that should have been begun by now, oldest first."""
    due = (now or timezone.now()) - _PATIENCE
    rows = model.objects.filter(started_at=None, finished_at=None, created_at__lt=due)
    return list(rows.order_by("pk").values_list("pk", flat=True))
