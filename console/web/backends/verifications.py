"""The eight points: asking for a run, and its report beside the last one."""

from __future__ import annotations

from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST
from django_htmx.http import HttpResponseClientRefresh

from console.fleet.models import Verification
from console.fleet.verification import compare, request_verification
from console.tenants.access import Action
from console.web.backends.views import backend_of
from console.web.requests import ConsoleRequest, page

__all__ = ["report", "verify"]


@require_POST
def verify(request: ConsoleRequest, backend_id: str) -> HttpResponse:
    row = backend_of(request, backend_id)
    request.principal.require(Action.MANAGE, tenant_id=row.tenant_id)
    made = request_verification(
        backend=row,
        template=request.POST.get("template", "").strip()[:200],
        actor=request.principal.actor,
    )
    return redirect("web:verification", made.pk)


def report(request: ConsoleRequest, verification_id: str) -> HttpResponse:
    row = (
        Verification.objects.filter(
            pk=verification_id, backend__tenant__in=request.principal.tenants()
        )
        .select_related("backend")
        .first()
    )
    if row is None:
        raise Http404
    if request.htmx and row.finished_at is not None:
        return HttpResponseClientRefresh()
    return page(
        request,
        "backends/verification.html",
        {"report": row, "points": compare(row), "previous": row.previous()},
        area="backends",
        partial="points",
    )
