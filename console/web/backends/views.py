"""One backend with its last check and its reports. The list is in `lists.py`."""

from __future__ import annotations

from asgiref.sync import async_to_sync
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from console.fleet.accounts import left_there
from console.fleet.changes import silent_releases
from console.fleet.connection import fields_of, masked
from console.fleet.models import Backend, FormerAccount, SessionState
from console.fleet.services import check_backend
from console.fleet.verification import default_template
from console.tenants.access import Action
from console.web.backends.abilities import abilities
from console.web.requests import ConsoleRequest, page
from sandboxes import registry
from skills.models import Release


def backend_of(request: ConsoleRequest, backend_id: str) -> Backend:
    row = (
        Backend.objects.filter(pk=backend_id, tenant__in=request.principal.tenants())
        .select_related("tenant")
        .first()
    )
    if row is None:
        raise Http404
    return row


def backend(request: ConsoleRequest, backend_id: str) -> HttpResponse:
    row = backend_of(request, backend_id)
    labels = {field.name: field.label for field in fields_of(row.provider)}
    return page(
        request,
        "backends/backend.html",
        {
            "backend": row,
            "label": registry.provider(row.provider).label,
            "abilities": abilities(row.capabilities),
            "settings": [(labels[name], value) for name, value in masked(row).items() if value],
            "silent": silent_releases(row),
            "former": _former(row),
            "live": row.sessions.filter(
                state__in=[SessionState.ACTIVE, SessionState.PAUSED]
            ).count(),
            "verifications": row.verifications.defer("points")[:10],
            "template": default_template(row),
            "may_manage": request.principal.may(Action.MANAGE, tenant_id=row.tenant_id),
        },
        area="backends",
    )


def _former(row: Backend) -> list[tuple[FormerAccount, list[Release]]]:
    """Accounts that it has left and still has credentials for, with the releases that lie there."""
    return [
        (former, list(left_there(row, former.fingerprint).select_related("space")))
        for former in row.former_accounts.filter(finished_at=None)
    ]


@require_POST
def check(request: ConsoleRequest, backend_id: str) -> HttpResponse:
    row = backend_of(request, backend_id)
    request.principal.require(Action.MANAGE, tenant_id=row.tenant_id)
    row = async_to_sync(check_backend)(row)
    if row.check_error:
        messages.error(request, row.check_error)
    else:
        messages.success(request, _("The backend answers."))
    return redirect("web:backend", row.pk)
