"""Finding a backend as people at a terminal name it."""

from __future__ import annotations

from django.core.management.base import CommandError

from console.fleet.models import Backend

__all__ = ["backend_called"]


def backend_called(wanted: str) -> Backend:
    """By id or name. CommandError that lists what there is, if it means none or several."""
    found = list(Backend.objects.filter(pk=wanted)) or list(Backend.objects.filter(name=wanted))
    if len(found) != 1:
        names = ", ".join(f"{row.name} ({row.pk})" for row in found or Backend.objects.all()[:20])
        how = "Several are called" if found else "There is no backend called"
        raise CommandError(f"{how} “{wanted}”; give an id of: {names}.")
    return found[0]
