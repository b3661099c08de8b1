"""A backend's templates, apart from its snapshots: those that spaces need, building and deleting them."""

from __future__ import annotations

from asgiref.sync import async_to_sync
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from console.fleet.images import delete_template, ensure_template, list_images
from console.tenants.access import Action
from console.web.backends.views import backend_of
from console.web.requests import ConsoleRequest, page
from sandboxes.errors import SandboxError
from sandboxes.types import TemplateStatus

__all__ = ["build", "delete", "images"]


def images(request: ConsoleRequest, backend_id: str) -> HttpResponse:
    row = backend_of(request, backend_id)
    found, problem = None, ""
    try:
        found = async_to_sync(list_images)(row)
    except SandboxError as error:
        problem = error.message
    return page(
        request,
        "backends/images.html",
        {
            "backend": row,
            "images": found,
            "problem": problem,
            "may_manage": request.principal.may(Action.MANAGE, tenant_id=row.tenant_id),
        },
        area="backends",
        partial="needed",
    )


@require_POST
def build(request: ConsoleRequest, backend_id: str) -> HttpResponse:
    row = backend_of(request, backend_id)
    request.principal.require(Action.MANAGE, tenant_id=row.tenant_id)
    try:
        found = async_to_sync(ensure_template)(
            backend=row,
            name=request.POST.get("template", ""),
            rebuild="rebuild" in request.POST,
            actor=request.principal.actor,
        )
    except SandboxError as error:
        messages.error(request, error.message)
    else:
        if found.status is TemplateStatus.BUILDING:
            messages.success(request, _("The template is being built; this takes some minutes."))
        else:
            messages.success(request, _("The template is there."))
    return redirect("web:backend-images", row.pk)


@require_POST
def delete(request: ConsoleRequest, backend_id: str) -> HttpResponse:
    row = backend_of(request, backend_id)
    request.principal.require(Action.MANAGE, tenant_id=row.tenant_id)
    try:
        async_to_sync(delete_template)(
            backend=row,
            template_id=request.POST.get("template", ""),
            actor=request.principal.actor,
        )
    except SandboxError as error:
        messages.error(request, error.message)
    else:
        messages.success(request, _("The template is deleted."))
    return redirect("web:backend-images", row.pk)
