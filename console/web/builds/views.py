"""One build with its live log, and asking for one. The list is in `lists.py`."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime

from asgiref.sync import sync_to_async
from django.contrib import messages
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST
from django_htmx.http import HttpResponseClientRefresh

from console.tenants.access import Action
from console.web.requests import ConsoleRequest, event_stream, page
from skills import services
from skills.follow import follow
from skills.models import Build, BuildStep, Skill, SkillVersion

ASKED_EVERY_S = 60.0
_ASK_AGAIN_MS = 200


def _build(request: ConsoleRequest, build_id: str, action: Action = Action.VIEW) -> Build:
    build = Build.objects.select_related("space__tenant", "created_by").filter(pk=build_id).first()
    if build is None:
        raise Http404
    request.principal.space(build.space_id, action)
    return build


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of a build as the page shows it; `look` is done, now, failed or empty."""

    label: str
    look: str
    took_s: float | None


def stages(build: Build) -> list[Stage]:
    by_step = {entry["step"]: entry for entry in build.steps}
    rows = []
    for step in BuildStep:
        entry = by_step.get(step.value)
        look, took = "", None
        if entry is not None:
            if entry.get("finished_at"):
                look = "done" if entry.get("ok") else "failed"
                began = datetime.fromisoformat(entry["started_at"])
                took = (datetime.fromisoformat(entry["finished_at"]) - began).total_seconds()
            else:
                look = "failed" if build.is_finished else "now"
        rows.append(Stage(str(step.label), look, took))
    return rows


def build(request: ConsoleRequest, build_id: str) -> HttpResponse:
    row = _build(request, build_id)
    if request.htmx and row.is_finished:
        # What can be done next differs all over the page, so the poll ends by loading it anew.
        return HttpResponseClientRefresh()
    return page(
        request,
        "builds/build.html",
        {
            "build": row,
            "stages": stages(row),
            "stuck": services.stuck(row),
            "items": row.items.select_related("version__skill"),
            "last_lines": list(row.log.order_by("-id")[:12])[::-1] if row.error else [],
            "serving": row.space.current_release,
            "may_operate": request.principal.may(
                Action.OPERATE, tenant_id=row.space.tenant_id, space_id=row.space_id
            ),
            "may_build": request.principal.may(
                Action.BUILD, tenant_id=row.space.tenant_id, space_id=row.space_id
            ),
        },
        area="builds",
        partial="status",
    )


@require_POST
def install(request: ConsoleRequest, space_id: str) -> HttpResponse:
    """Queue a build that adds the chosen versions."""
    space = request.principal.space(space_id, Action.BUILD)
    chosen = SkillVersion.objects.filter(
        pk__in=request.POST.getlist("version"), skill__tenant=space.tenant
    ).select_related("skill")
    if not chosen:
        messages.warning(request, _("Choose at least one skill to install."))
        return redirect("web:space-skills", space.pk)
    row = services.request_build(space=space, actor=request.principal.actor, add=chosen)
    return redirect("web:build", row.pk)


@require_POST
def uninstall(request: ConsoleRequest, space_id: str) -> HttpResponse:
    space = request.principal.space(space_id, Action.BUILD)
    skill = Skill.objects.filter(pk=request.POST.get("skill"), tenant=space.tenant).first()
    if skill is None:
        raise Http404
    row = services.uninstall(space=space, skill=skill, actor=request.principal.actor)
    return redirect("web:build", row.pk)


@require_POST
def cancel(request: ConsoleRequest, build_id: str) -> HttpResponse:
    row = _build(request, build_id, Action.OPERATE)
    services.cancel_build(build=row, actor=request.principal.actor)
    messages.info(request, _("The build is being stopped; what serves now keeps serving."))
    return redirect("web:build", row.pk)


@require_POST
def take_up(request: ConsoleRequest, build_id: str) -> HttpResponse:
    """Not to wait for the sweep."""
    row = _build(request, build_id, Action.OPERATE)
    services.take_up(build=row, actor=request.principal.actor)
    messages.info(request, _("It is handed to a worker; if none runs, start one."))
    return redirect("web:build", row.pk)


@require_POST
def retry(request: ConsoleRequest, build_id: str) -> HttpResponse:
    row = _build(request, build_id, Action.BUILD)
    again = services.retry_build(build=row, actor=request.principal.actor)
    return redirect("web:build", again.pk)


@require_POST
def apply_hint(request: ConsoleRequest, build_id: str, index: int) -> HttpResponse:
    row = _build(request, build_id, Action.BUILD)
    again = services.apply_hint(build=row, index=index, actor=request.principal.actor)
    messages.success(request, _("The plan was amended and the build is tried again."))
    return redirect("web:build", again.pk)


@require_GET
async def log_events(request: ConsoleRequest, build_id: str) -> StreamingHttpResponse:
    """The log as server-sent events; `Last-Event-ID` resumes after that line."""
    await sync_to_async(_build)(request, build_id)
    last = request.headers.get("Last-Event-ID", "")
    return event_stream(_events(build_id, int(last) if last.isdigit() else 0))


async def _events(build_id: str, after: int) -> AsyncIterator[str]:
    """Whole lines as they are stored, then `end`. A comment keeps idle connections open. After a minute
    it breaks off and the browser asks again, so that nobody reads on whose sign-in or right has ended."""
    began = time.monotonic()
    yield f"retry: {_ASK_AGAIN_MS}\n\n"
    async with aclosing(follow(build_id, after=after)) as lines:
        async for line in lines:
            if line is None:
                yield ": still here\n\n"
            else:
                data = json.dumps({"stream": line.stream, "step": line.step, "text": line.text})
                yield f"id: {line.pk}\nevent: line\ndata: {data}\n\n"
            if time.monotonic() - began > ASKED_EVERY_S:
                return
    yield "event: end\ndata: {}\n\n"


@require_GET
def log_text(request: ConsoleRequest, build_id: str) -> StreamingHttpResponse:
    """The whole log as a text file."""
    row = _build(request, build_id)
    lines = (f"{line.text}\n" for line in row.log.iterator(chunk_size=500))
    response = StreamingHttpResponse(lines, content_type="text/plain; charset=utf-8")
    response.headers["Content-Disposition"] = f'attachment; filename="build-{row.pk}.log"'
    return response
