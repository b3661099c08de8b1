"""Adding, editing and deleting a backend. A change of its identity is shown in full before it is made."""

from __future__ import annotations

import json

from asgiref.sync import async_to_sync
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from console import crypto
from console.fleet.accounts import forget, prove_same_account
from console.fleet.backends import (
    BackendInUse,
    InventoryUnverifiable,
    SandboxesStillLive,
    add_backend,
    delete_backend,
    edit_backend,
    preview_change,
)
from console.fleet.connection import Connection, check_urls, read
from console.fleet.models import Backend
from console.fleet.prices import set_price
from console.fleet.services import check_backend
from console.tenants.access import Action
from console.tenants.models import Tenant
from console.web.backends.forms import BackendForm
from console.web.backends.views import backend_of
from console.web.requests import ConsoleRequest, page
from sandboxes import registry
from sandboxes.errors import Conflict, InvalidRequest

__all__ = ["confirm", "delete", "edit", "give_up", "new"]


def new(request: ConsoleRequest) -> HttpResponse:
    """First which kind, then its settings."""
    tenants = request.principal.tenants(Action.MANAGE)
    if not tenants.exists():
        request.principal.require(Action.MANAGE, tenant_id="")
    provider = request.GET.get("provider", "")
    if provider not in registry.PROVIDERS:
        kinds = list(registry.PROVIDERS.values())
        return page(request, "backends/choose.html", {"providers": kinds}, area="backends")
    tenant = _tenant(request, tenants.first())
    form = BackendForm(request.POST or None, provider=provider)
    if request.method == "POST" and form.is_valid():
        try:
            made = async_to_sync(add_backend)(
                tenant=tenant,
                name=form.cleaned_data["name"],
                provider=provider,
                values=form.values(),
                actor=request.principal.actor,
            )
            _save_price(request, made, form)
        except (InvalidRequest, ValidationError) as error:
            form.add_error(None, error if isinstance(error, ValidationError) else error.message)
        else:
            return _checked(request, made)
    return page(
        request,
        "form_page.html",
        {
            "form": form,
            "title": _("Add a backend: %(kind)s") % {"kind": registry.provider(provider).label},
            "lead": _("The connection is tried when you save it."),
            "submit": _("Connect"),
            "cancel": reverse("web:new-backend"),
        },
        area="backends",
    )


def _tenant(request: ConsoleRequest, first: Tenant | None) -> Tenant:
    wanted = request.GET.get("tenant") or (first.pk if first else "")
    return request.principal.tenant(wanted, Action.MANAGE)


def _save_price(request: ConsoleRequest, row: Backend, form: BackendForm) -> bool:
    """It is no part of the connection, so it is saved whatever becomes of that."""
    return set_price(
        backend=row,
        hourly_cost=form.cleaned_data["hourly_cost"],
        currency=form.cleaned_data["currency"],
        actor=request.principal.actor,
    )


def _checked(request: ConsoleRequest, row: Backend) -> HttpResponse:
    row = async_to_sync(check_backend)(row)
    if row.check_error:
        messages.warning(request, _("It is saved, but does not answer: %s") % row.check_error)
    else:
        messages.success(request, _("It is saved, and answers."))
    return redirect("web:backend", row.pk)


def edit(request: ConsoleRequest, backend_id: str) -> HttpResponse:
    row = backend_of(request, backend_id)
    request.principal.require(Action.MANAGE, tenant_id=row.tenant_id)
    form = BackendForm(request.POST or None, provider=row.provider, backend=row)
    if request.method == "POST" and form.is_valid():
        try:
            connection = read(row.provider, form.values(), stored=row)
            if _save_price(request, row, form):
                messages.success(request, _("What a sandbox costs is saved."))
            if Connection.of(row).identity_changes(connection):
                async_to_sync(check_urls)(connection)
                _keep(request, row, form.cleaned_data["name"], connection)
                return redirect("web:confirm-backend", row.pk)
            row = async_to_sync(edit_backend)(
                backend=row,
                name=form.cleaned_data["name"],
                connection=connection,
                actor=request.principal.actor,
            )
        except InvalidRequest as error:
            form.add_error(None, error.message)
        else:
            return _checked(request, row)
    return page(
        request,
        "form_page.html",
        {
            "form": form,
            "title": _("Edit %(name)s") % {"name": row.name},
            "lead": _("What would point it at another account is shown to you before it is done."),
            "submit": _("Save"),
            "cancel": reverse("web:backend", args=[row.pk]),
        },
        area="backends",
    )


def confirm(request: ConsoleRequest, backend_id: str) -> HttpResponse:
    """What a change of identity does, and doing it."""
    row = backend_of(request, backend_id)
    request.principal.require(Action.MANAGE, tenant_id=row.tenant_id)
    pending = _kept(request, row)
    if pending is None:
        return redirect("web:edit-backend", row.pk)
    name, connection = pending
    problem: Conflict | InvalidRequest | None = None
    if request.method == "POST":
        try:
            row = async_to_sync(edit_backend)(
                backend=row,
                name=name,
                connection=connection,
                actor=request.principal.actor,
                force="force" in request.POST,
                end_sandboxes="end" in request.POST,
            )
        except (Conflict, InvalidRequest) as error:
            problem = error
        else:
            del request.session[_pending(row)]
            return _checked(request, row)
    return page(
        request,
        "backends/confirm.html",
        {
            "backend": row,
            "change": preview_change(
                row,
                connection,
                async_to_sync(prove_same_account)(backend=row, connection=connection),
            ),
            "problem": problem,
            "inventory": problem.inventory if isinstance(problem, SandboxesStillLive) else None,
            "may_force": isinstance(problem, InventoryUnverifiable) or "end" in request.POST,
            "ends": "end" in request.POST,
        },
        area="backends",
        status=problem.status or 409 if problem else 200,
    )


def _pending(row: Backend) -> str:
    return f"pending-backend-{row.pk}"


def _keep(request: ConsoleRequest, row: Backend, name: str, connection: Connection) -> None:
    """Encrypted, in the person's own session: a new key never travels back to the browser."""
    values = {"name": name, "settings": connection.settings, "secrets": connection.secrets}
    request.session[_pending(row)] = crypto.encrypt(json.dumps(values))


def _kept(request: ConsoleRequest, row: Backend) -> tuple[str, Connection] | None:
    token = request.session.get(_pending(row))
    if token is None:
        return None
    values = json.loads(crypto.decrypt(token))
    connection = Connection(
        provider=row.provider, settings=values["settings"], secrets=values["secrets"]
    )
    return values["name"], connection


@require_POST
def give_up(request: ConsoleRequest, backend_id: str, former_id: str) -> HttpResponse:
    """Leave at a former account what is there, and erase its credentials."""
    row = backend_of(request, backend_id)
    request.principal.require(Action.MANAGE, tenant_id=row.tenant_id)
    former = get_object_or_404(row.former_accounts, pk=former_id)
    forget(former=former, actor=request.principal.actor)
    messages.success(request, _("The old credentials are erased."))
    return redirect("web:backend", row.pk)


@require_POST
def delete(request: ConsoleRequest, backend_id: str) -> HttpResponse:
    row = backend_of(request, backend_id)
    request.principal.require(Action.MANAGE, tenant_id=row.tenant_id)
    try:
        async_to_sync(delete_backend)(
            backend=row, actor=request.principal.actor, force="force" in request.POST
        )
    except (Conflict, BackendInUse) as error:
        return page(
            request,
            "backends/not_deleted.html",
            {
                "backend": row,
                "problem": error,
                "inventory": error.inventory if isinstance(error, SandboxesStillLive) else None,
                "may_force": isinstance(error, InventoryUnverifiable),
            },
            area="backends",
            status=error.status or 409,
        )
    messages.success(request, _("The backend is deleted."))
    return redirect("web:backends")
