"""One release: rolling out and back, rebuilding, comparing. The list is in `lists.py`."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from console.tenants.access import Action
from console.web.requests import ConsoleRequest, page
from sandboxes.errors import InvalidRequest
from skills import services
from skills.models import Release
from skills.services.compare import diff_releases


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


def compare(request: ConsoleRequest, space_id: str) -> HttpResponse:
    """The diff of any two releases of a space; `before` empty is the base template."""
    space = request.principal.space(space_id, Action.VIEW)
    found = {
        name: space.releases.filter(generation=int(number)).first()
        for name in ("before", "after")
        if (number := request.GET.get(name, "")).isdigit()
    }
    before, after = found.get("before"), found.get("after")
    if after is None:
        raise Http404
    diff = diff_releases(before=before, after=after)
    return page(
        request,
        "releases/compare.html",
        {
            "space": space,
            "before": before,
            "after": after,
            "releases": space.releases.all(),
            "diff": diff,
            "parts": [
                (_("Skills"), diff.skills),
                (_("Files"), diff.files),
                ("pip", diff.pip),
                ("npm", diff.npm),
                ("apt", diff.apt),
            ],
        },
        area="spaces",
        tab="releases",
    )


def _percent(request: ConsoleRequest) -> int:
    text = request.POST.get("percent", "")
    if not text.isdigit():
        raise InvalidRequest("Give the share of new sessions as a whole number from 0 to 100.")
    return int(text)


@require_POST
def roll_out(request: ConsoleRequest, release_id: str) -> HttpResponse:
    """Give a release to a share of new sessions, and to named ones, first."""
    row = _release(request, release_id, Action.BUILD)
    services.start_rollout(
        space=row.space,
        release=row,
        percent=_percent(request),
        sessions=request.POST.get("sessions", "").split(),
        actor=request.principal.actor,
        reason=request.POST.get("reason", ""),
    )
    messages.success(request, _("The release is a candidate now."))
    return redirect("web:space-releases", row.space_id)


@require_POST
def promote(request: ConsoleRequest, space_id: str) -> HttpResponse:
    space = request.principal.space(space_id, Action.BUILD)
    services.promote_candidate(space=space, actor=request.principal.actor)
    messages.success(request, _("The candidate serves every session now."))
    return redirect("web:space-releases", space.pk)


@require_POST
def withdraw(request: ConsoleRequest, space_id: str) -> HttpResponse:
    space = request.principal.space(space_id, Action.BUILD)
    services.withdraw_candidate(space=space, actor=request.principal.actor)
    messages.success(request, _("The candidate is withdrawn."))
    return redirect("web:space-releases", space.pk)


@require_POST
def compact(request: ConsoleRequest, space_id: str) -> HttpResponse:
    """Build the same skills anew on the base template, in one layer."""
    space = request.principal.space(space_id, Action.BUILD)
    build = services.compact(space=space, actor=request.principal.actor)
    return redirect("web:build", build.pk)


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
