"""How a tenant's members sign in: their second step, where they are signed in, and locks."""

from __future__ import annotations

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST

from console.tenants import member_security
from console.tenants.access import Action
from console.tenants.models import User
from console.web.requests import ConsoleRequest, page

__all__ = ["people", "require", "sign_out", "unlock"]


def people(request: ConsoleRequest) -> HttpResponse:
    principal = request.principal
    rows = Paginator(member_security.people_of(principal), 50).get_page(request.GET.get("page"))
    security = member_security.security_of(rows)
    managed = list(principal.tenants(Action.MANAGE))
    without = member_security.without_two_step(managed)
    return page(
        request,
        "members/security.html",
        {
            "rows": rows,
            "people": [(user, security[user.pk]) for user in rows],
            "tenants": [(tenant, without.get(tenant.pk, 0)) for tenant in managed],
            "has_own": request.user.has_two_step(),
        },
        area="members",
        tab="security",
    )


@require_POST
def require(request: ConsoleRequest, tenant_id: str) -> HttpResponse:
    tenant = request.principal.tenant(tenant_id, Action.MANAGE)
    required = request.POST.get("required") == "yes"
    member_security.require_two_step(principal=request.principal, tenant=tenant, required=required)
    words = (
        _("Members of “%(name)s” must use two-step sign-in now.")
        if required
        else _("Members of “%(name)s” may sign in without a second step now.")
    )
    messages.success(request, words % {"name": tenant.name})
    return redirect("web:member-security")


@require_POST
def sign_out(request: ConsoleRequest, user_id: int) -> HttpResponse:
    user = _member(request, user_id)
    count = member_security.end_member_sign_ins(principal=request.principal, user=user)
    words = ngettext(
        "“%(name)s” is signed out (%(count)d browser).",
        "“%(name)s” is signed out (%(count)d browsers).",
        count,
    )
    messages.success(request, words % {"name": user.get_username(), "count": count})
    return redirect("web:member-security")


@require_POST
def unlock(request: ConsoleRequest, user_id: int) -> HttpResponse:
    user = _member(request, user_id)
    member_security.lift_member_lock(principal=request.principal, user=user)
    messages.success(
        request, _("“%(name)s” may try again at once.") % {"name": user.get_username()}
    )
    return redirect("web:member-security")


def _member(request: ConsoleRequest, user_id: int) -> User:
    return get_object_or_404(member_security.people_of(request.principal), pk=user_id)
