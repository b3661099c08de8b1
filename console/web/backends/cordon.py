"""Keeping new sandboxes off a backend, and letting it start them again."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from console.fleet.backends import cordon_backend, uncordon_backend
from console.fleet.models import Backend
from console.tenants.access import Action
from console.web.backends.views import backend_of
from console.web.requests import ConsoleRequest

__all__ = ["cordon", "uncordon"]


@require_POST
def cordon(request: ConsoleRequest, backend_id: str) -> HttpResponse:
    row = _mine(request, backend_id)
    reason = request.POST.get("reason", "").strip()[:300]
    cordon_backend(backend=row, actor=request.principal.actor, reason=reason)
    messages.success(request, _("It starts nothing new; what runs on it runs on."))
    return redirect("web:backend", row.pk)


@require_POST
def uncordon(request: ConsoleRequest, backend_id: str) -> HttpResponse:
    row = _mine(request, backend_id)
    uncordon_backend(backend=row, actor=request.principal.actor)
    messages.success(request, _("It starts new sandboxes again."))
    return redirect("web:backend", row.pk)


def _mine(request: ConsoleRequest, backend_id: str) -> Backend:
    row = backend_of(request, backend_id)
    request.principal.require(Action.MANAGE, tenant_id=row.tenant_id)
    return row
