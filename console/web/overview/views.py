"""The first page: what runs, how it went, and what needs somebody; and the same of one space."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from console.embedded.template_build import template_build
from console.policies.services import current_policy
from console.tenants.access import Action
from console.web.overview.dashboard import dashboard, recent_sessions
from console.web.overview.first_steps import first_steps
from console.web.overview.panels import period_of
from console.web.requests import ConsoleRequest, page

__all__ = ["hide_first_steps", "overview", "space"]


def overview(request: ConsoleRequest) -> HttpResponse:
    """For htmx its live part, or with `?part=template` how far the base template's build is."""
    if request.GET.get("part") == "template":
        context = {"template": template_build()}
        return page(request, "overview/overview.html", context, area="overview", partial="template")
    principal = request.principal
    found = dashboard(principal, period=period_of(request.GET.get("period", "")))
    sessions = list(recent_sessions(principal.spaces()))
    return page(
        request,
        "overview/overview.html",
        {
            "dashboard": found,
            "recent_sessions": sessions,
            "first_steps": first_steps(principal, request.user, found, has_sessions=bool(sessions)),
            "template": template_build(),
            "may_upload": any(
                principal.may(Action.CATALOG, tenant_id=tenant.pk) for tenant in found.tenants
            ),
        },
        area="overview",
        partial="live",
    )


def space(request: ConsoleRequest, space_id: str) -> HttpResponse:
    """The same of one space, with what serves in it and what it may reach."""
    row = request.principal.space(space_id, Action.VIEW)
    found = dashboard(request.principal, period=period_of(request.GET.get("period", "")), space=row)
    return page(
        request,
        "overview/space.html",
        {
            "space": row,
            "dashboard": found,
            "standing": found.spaces[0],
            "policy": current_policy(row),
            "skills": row.current_release.items.count() if row.current_release else 0,
            "may_run": request.principal.may(Action.RUN, tenant_id=row.tenant_id, space_id=row.pk),
        },
        area="spaces",
        tab="overview",
        partial="live",
    )


@require_POST
def hide_first_steps(request: ConsoleRequest) -> HttpResponse:
    """For this person, for good."""
    request.user.hides_first_steps = True
    request.user.save(update_fields=["hides_first_steps"])
    return redirect("web:overview")
