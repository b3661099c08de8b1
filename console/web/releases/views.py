"""Releases: the timeline of a space, one release, rolling back, rebuilding."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from console.tenants.access import Action
from console.web.requests import ConsoleRequest, page
from skills import services
from skills.models import Release


def _release(request: ConsoleRequest, release_id: str, action: Action = Action.VIEW) -> Release:
    release = (
        Release.objects.select_related("space__tenant", "space__backend", "backend", "parent")
        .filter(pk=release_id)
        .first()
    )
    if release is None:
        raise Http404
    request.principal.space(release.space_id, action)
    return release


def releases(request: ConsoleRequest, space_id: str) -> HttpResponse:
    space = request.principal.space(space_id, Action.VIEW)
    return page(
        request,
        "releases/list.html",
        {
            "space": space,
            "releases": space.releases.select_related("created_by").prefetch_related(
                "items__version__skill"
            ),
            "promotions": space.promotions.select_related("release", "created_by")[:30],
            "may_build": request.principal.may(
                Action.BUILD, tenant_id=space.tenant_id, space_id=space.pk
            ),
        },
        area="spaces",
        tab="releases",
    )


def release(request: ConsoleRequest, release_id: str) -> HttpResponse:
    row = _release(request, release_id)
    space = row.space
    return page(
        request,
        "releases/release.html",
        {
            "release": row,
            "space": space,
            "items": row.items.select_related("version__skill"),
            "serves": space.current_release_id == row.pk,
            "usable": row.usable_on(space.backend),
            "sessions": row.live_sessions().count(),
            "may_build": request.principal.may(
                Action.BUILD, tenant_id=space.tenant_id, space_id=space.pk
            ),
        },
        area="spaces",
        tab="releases",
    )


@require_POST
def roll_back(request: ConsoleRequest, release_id: str) -> HttpResponse:
    row = _release(request, release_id, Action.BUILD)
    services.roll_back(
        space=row.space,
        release=row,
        actor=request.principal.actor,
        reason=request.POST.get("reason", ""),
    )
    messages.success(
        request, _("New sessions start from release %(number)d.") % {"number": row.generation}
    )
    return redirect("web:space-releases", row.space_id)


@require_POST
def rebuild(request: ConsoleRequest, release_id: str) -> HttpResponse:
    row = _release(request, release_id, Action.BUILD)
    build = services.rebuild(space=row.space, actor=request.principal.actor)
    return redirect("web:build", build.pk)


@require_POST
def delete(request: ConsoleRequest, release_id: str) -> HttpResponse:
    row = _release(request, release_id, Action.BUILD)
    services.delete_release(release=row, actor=request.principal.actor)
    messages.success(request, _("The snapshot is being deleted; the row stays as history."))
    return redirect("web:space-releases", row.space_id)
