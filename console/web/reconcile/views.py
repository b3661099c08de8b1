"""One report of the reconciler, and asking for a run. The list is in `lists.py`."""

from __future__ import annotations

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST
from django_htmx.http import HttpResponseClientRefresh

from console.fleet.models import Backend, ReconcileReport
from console.fleet.reconcile import request_reconcile
from console.tenants.access import Action
from console.tenants.models import Space
from console.web.requests import ConsoleRequest, page

KINDS = {
    "orphan": gettext_lazy("Nobody's"),
    "stuck": gettext_lazy("Stuck"),
    "unverifiable": gettext_lazy("Can't be told"),
    "claimable": gettext_lazy("Waits for its session"),
    "drifted": gettext_lazy("Older than its space"),
    "young": gettext_lazy("Too young to tell"),
}
ACTIONS = {
    "deleted": gettext_lazy("deleted"),
    "would_delete": gettext_lazy("would be deleted"),
    "not_deleted": gettext_lazy("not deleted"),
    "kept": gettext_lazy("kept"),
}


def report(request: ConsoleRequest, report_id: str) -> HttpResponse:
    row = (
        ReconcileReport.objects.filter(
            pk=report_id, backend__tenant__in=request.principal.tenants()
        )
        .select_related("backend")
        .first()
    )
    if row is None:
        raise Http404
    if request.htmx and row.finished_at is not None:
        return HttpResponseClientRefresh()
    kind = request.GET.get("kind", "")
    findings = [finding for finding in row.findings if kind in ("", finding["kind"])]
    shown = Paginator(findings, 50).get_page(request.GET.get("page"))
    spaces = Space.objects.in_bulk({finding["space"] for finding in shown if finding["space"]})
    return page(
        request,
        "reconcile/report.html",
        {
            "report": row,
            "shown": shown,
            "rows": [
                {
                    **finding,
                    "space_row": spaces.get(finding["space"]),
                    "kind_label": KINDS[finding["kind"]],
                    "action_label": ACTIONS[finding["action"]],
                }
                for finding in shown
            ],
            "kinds": KINDS.items(),
            "kind": kind,
            "may_operate": request.principal.may(Action.OPERATE, tenant_id=row.backend.tenant_id),
        },
        area="reconcile",
        partial="state",
    )


@require_POST
def run(request: ConsoleRequest, backend_id: str) -> HttpResponse:
    """Ask for a run over one backend; its report says how it goes."""
    backend = Backend.objects.filter(pk=backend_id, tenant__in=request.principal.tenants()).first()
    if backend is None:
        raise Http404
    request.principal.require(Action.OPERATE, tenant_id=backend.tenant_id)
    row = request_reconcile(
        backend=backend,
        dry_run=request.POST.get("dry_run", "1") != "0",
        actor=request.principal.actor,
    )
    messages.success(request, _("A worker takes it up; the report appears here."))
    return redirect("web:reconcile-report", row.pk)
