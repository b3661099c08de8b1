"""How a tenant's members sign in: their second step, where they are signed in, and locks."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_POST

from console.tenants import member_security
from console.tenants.access import Action
from console.tenants.models import User
from console.web.lists import ChoiceFilter, Column, ListFilter, ListPage, SearchFilter
from console.web.requests import ConsoleRequest

__all__ = ["MEMBER_SECURITY", "people", "require", "sign_out", "unlock"]


class SecurityFilter(ListFilter):
    q = SearchFilter(
        "username", "first_name", "last_name", "email", label=gettext_lazy("User name or name")
    )
    state = ChoiceFilter(
        choices=[
            ("with", gettext_lazy("with two-step sign-in")),
            ("without", gettext_lazy("without two-step sign-in")),
            ("signed_in", gettext_lazy("signed in")),
        ],
        label=gettext_lazy("State"),
        any_label=gettext_lazy("Any state"),
        method="in_state",
    )

    def in_state(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        if value == "signed_in":
            return rows.filter(browsers__gt=0)
        return rows.filter(two_step=value == "with")


MEMBER_SECURITY = ListPage(
    name="member-security",
    title=gettext_lazy("How members sign in"),
    template="members/security.html",
    rows=lambda principal: member_security.with_sign_ins(member_security.people_of(principal)),
    filters=SecurityFilter,
    columns=(
        Column("username", gettext_lazy("Person"), sort="username"),
        Column("name", value=lambda row: row.get_full_name()),
        Column("two_step", gettext_lazy("Two-step sign-in"), sort="two_step"),
        Column("browsers", gettext_lazy("Signed in"), sort="browsers", falling=True),
        Column(
            "last_seen_at",
            gettext_lazy("Last used"),
            sort="last_seen_at",
            falling=True,
            nullable=True,
        ),
    ),
    sort="username",
)


def people(request: ConsoleRequest) -> HttpResponseBase:
    principal = request.principal
    tenants = list(principal.tenants(Action.MANAGE))
    without = member_security.without_two_step(tenants)
    context = {
        "locks": member_security.locks_of(member_security.people_of(principal)),
        "tenants": [(tenant, without.get(tenant.pk, 0)) for tenant in tenants],
        "has_own": request.user.has_two_step(),
    }
    return MEMBER_SECURITY.respond(request, context=context, area="members")


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
