"""The first page: what runs, and what needs attention."""

from __future__ import annotations

from django.db.models import Count
from django.http import HttpResponse

from console.embedded.template_build import template_build
from console.fleet.models import Backend, Session, SessionState
from console.tenants.access import Action
from console.web.requests import ConsoleRequest, page
from skills.models import Build, BuildState, Release, ReleaseState, Skill


def overview(request: ConsoleRequest) -> HttpResponse:
    spaces = request.principal.spaces()
    tenants = request.principal.tenants()
    states = dict(
        Session.objects.filter(space__in=spaces).values_list("state").annotate(Count("pk"))
    )
    builds = Build.objects.filter(space__in=spaces).select_related("space")
    return page(
        request,
        "overview/overview.html",
        {
            "spaces": spaces.count(),
            "skills": Skill.objects.filter(
                tenant__in=request.principal.member_of(), archived_at=None
            ).count(),
            "running": states.get(SessionState.ACTIVE, 0),
            "paused": states.get(SessionState.PAUSED, 0),
            "unfinished": builds.unfinished().count(),
            "recent_builds": builds[:6],
            "recent_sessions": Session.objects.filter(space__in=spaces).select_related(
                "space", "release"
            )[:6],
            "broken_releases": Release.objects.filter(
                space__in=spaces, state=ReleaseState.BROKEN
            ).select_related("space")[:5],
            "failed_builds": builds.filter(state=BuildState.FAILED)[:3],
            "failing_backends": Backend.objects.filter(tenant__in=tenants).exclude(check_error=""),
            "template": template_build(),
            "may_upload": request.principal.tenants(Action.CATALOG).exists(),
        },
        area="overview",
        partial="template",
    )
