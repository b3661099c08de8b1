"""Builds of a space: ask for one, watch it, stop it, try it again."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

import django_filters
from asgiref.sync import sync_to_async
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from console.api.errors import as_api_error
from console.api.events import KEEP_ALIVE, event
from console.api.pages import filtered, page_of
from console.api.releases.serializers import (
    LOG_EVENTS,
    BuildSerializer,
    LogLineSerializer,
    LogSerializer,
    NewBuildSerializer,
)
from console.api.schema import EVENTS, operation, parameter
from console.api.views import SpaceView, answer
from console.tenants.access import Action
from sandboxes.errors import InvalidRequest
from skills import services
from skills.follow import follow
from skills.models import Build, BuildLogLine, BuildState, BuildTrigger, Skill, SkillVersion

TAG = "builds"
LOG_LIMIT = 1000
_NO_ID = 2**63

M = TypeVar("M", bound=Model)


class BuildFilter(django_filters.FilterSet):
    state = django_filters.ChoiceFilter(choices=BuildState.choices)
    trigger = django_filters.ChoiceFilter(choices=BuildTrigger.choices)

    class Meta:
        model = Build
        fields: tuple[str, ...] = ()


class BuildView(SpaceView):
    def build(self, pk: str) -> Build:
        row = Build.objects.filter(space=self.space, pk=pk).select_related("space").first()
        if row is None:
            raise Http404
        return row


class Builds(BuildView):
    needs = {"GET": Action.VIEW, "POST": Action.BUILD}
    creates = True
    limit = "build"

    @operation(
        "builds_list",
        "The builds of a space, newest first",
        tag=TAG,
        response=BuildSerializer,
        many=True,
        filters=BuildFilter,
    )
    def get(self, request: HttpRequest) -> HttpResponse:
        rows = filtered(BuildFilter, request, Build.objects.filter(space=self.space))
        return page_of(request, rows, BuildSerializer)

    @operation(
        "builds_create",
        "Ask for a build of the space's skills after a change",
        tag=TAG,
        request=NewBuildSerializer,
        response=BuildSerializer,
        status=202,
        idempotent=True,
        limited=True,
        description=(
            "A worker runs it; what serves now keeps serving until the switch. `compact` builds the same "
            "skills from the base template, `rebuild` does it after a change of credentials. The same "
            "wish, while it is queued, is the same build."
        ),
    )
    def post(self, request: HttpRequest) -> HttpResponse:
        wanted = self.valid(NewBuildSerializer)
        trigger = BuildTrigger(wanted["trigger"])
        if trigger is BuildTrigger.COMPACT:
            row = services.compact(space=self.space, actor=self.actor)
        elif trigger is BuildTrigger.REBUILD:
            row = services.rebuild(space=self.space, actor=self.actor)
        else:
            row = self._changed(wanted)
        return answer(BuildSerializer(row).data, status=202)

    def _changed(self, wanted: dict[str, Any]) -> Build:
        versions = SkillVersion.objects.filter(skill__tenant=self.space.tenant_id).select_related(
            "skill"
        )
        skills = Skill.objects.filter(tenant=self.space.tenant_id)
        whole = wanted["versions"]
        return services.request_build(
            space=self.space,
            actor=self.actor,
            add=_all(versions, wanted["add"]),
            remove=_all(skills, wanted["remove"]),
            versions=None if whole is None else _all(versions, whole),
            from_base=wanted["from_base"],
            rollout_percent=wanted["rollout_percent"],
            rollout_sessions=wanted["rollout_sessions"],
            note=wanted["note"],
        )


def _all(rows: QuerySet[M, M], ids: Sequence[str]) -> list[M]:
    """The rows in this order; InvalidRequest names one that the tenant does not have."""
    found = {row.pk: row for row in rows.filter(pk__in=ids)}
    for pk in ids:
        if pk not in found:
            raise InvalidRequest(f"This tenant's catalog has no “{pk[:64]}”; look at its list.")
    return [found[pk] for pk in ids]


class BuildDetail(BuildView):
    needs = {"GET": Action.VIEW}

    @operation("builds_get", "One build", tag=TAG, response=BuildSerializer)
    def get(self, request: HttpRequest, build: str) -> HttpResponse:
        return answer(BuildSerializer(self.build(build)).data)


class CancelBuild(BuildView):
    needs = {"POST": Action.OPERATE}

    @operation(
        "builds_cancel",
        "Stop a build",
        tag=TAG,
        response=BuildSerializer,
        errors=(409,),
        description="Idempotent. A running one stops within seconds. One that is over is a 409.",
    )
    def post(self, request: HttpRequest, build: str) -> HttpResponse:
        row = services.cancel_build(build=self.build(build), actor=self.actor)
        return answer(BuildSerializer(row).data)


class TakeUpBuild(BuildView):
    needs = {"POST": Action.OPERATE}

    @operation(
        "builds_take_up",
        "Hand a build that nobody works on to a worker, without waiting for the sweep",
        tag=TAG,
        response=BuildSerializer,
        errors=(409,),
        description="409 for one that is over, waits its turn, or whose worker lives or may come back.",
    )
    def post(self, request: HttpRequest, build: str) -> HttpResponse:
        row = self.build(build)
        services.take_up(build=row, actor=self.actor)
        return answer(BuildSerializer(row).data)


class RetryBuild(BuildView):
    needs = {"POST": Action.BUILD}
    creates = True
    limit = "build"

    @operation(
        "builds_retry",
        "Ask once more for what a failed or cancelled build was to do",
        tag=TAG,
        response=BuildSerializer,
        status=202,
        errors=(409,),
        idempotent=True,
        limited=True,
    )
    def post(self, request: HttpRequest, build: str) -> HttpResponse:
        row = services.retry_build(build=self.build(build), actor=self.actor)
        return answer(BuildSerializer(row).data, status=202)


class ApplyHint(BuildView):
    needs = {"POST": Action.BUILD}
    creates = True
    limit = "build"

    @operation(
        "builds_apply_hint",
        "Amend the plan as check number `index` of the report advises, and try again",
        tag=TAG,
        response=BuildSerializer,
        status=202,
        errors=(409,),
        idempotent=True,
        limited=True,
    )
    def post(self, request: HttpRequest, build: str, index: int) -> HttpResponse:
        row = services.apply_hint(build=self.build(build), index=index, actor=self.actor)
        return answer(BuildSerializer(row).data, status=202)


class BuildLog(BuildView):
    needs = {"GET": Action.VIEW}

    @operation(
        "builds_log",
        "A build's log",
        tag=TAG,
        response=LogSerializer,
        events=LOG_EVENTS,
        parameters=[
            parameter("after", int, "Only lines after the one with this id."),
            parameter(
                "Last-Event-ID", where="header", description="As `after`, for event streams."
            ),
            parameter("Accept", where="header", description=f"application/json or {EVENTS}."),
        ],
        description=(
            f"Up to {LOG_LIMIT} lines at once. With `Accept: {EVENTS}` the lines come as they are "
            "written, as events `line` with their id, and then one `end`, or `error`."
        ),
    )
    async def get(self, request: HttpRequest, build: str) -> HttpResponseBase:
        row = await sync_to_async(self.build)(build)
        after = _number(request.headers.get("Last-Event-ID") or request.GET.get("after") or "0")
        if EVENTS in request.headers.get("Accept", ""):
            events = _events(request, row.pk, after)
            response = StreamingHttpResponse(events, content_type=EVENTS)
            response.headers["X-Accel-Buffering"] = "no"
            return response
        return await sync_to_async(_lines)(row, after)


def _number(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text[:20]) < _NO_ID:
        return int(text)
    raise InvalidRequest("after takes the id of a line, a number.")


def _lines(build: Build, after: int) -> HttpResponse:
    finished = Build.objects.get(pk=build.pk).is_finished
    rows = list(BuildLogLine.objects.filter(build=build, pk__gt=after)[:LOG_LIMIT])
    return answer(
        {
            "lines": LogLineSerializer(rows, many=True).data,
            "last_id": rows[-1].pk if rows else after,
            "finished": finished and len(rows) < LOG_LIMIT,
        }
    )


async def _events(request: HttpRequest, build_id: str, after: int) -> AsyncGenerator[bytes, None]:
    try:
        async with aclosing(follow(build_id, after=after)) as lines:
            async for line in lines:
                if line is None:
                    yield KEEP_ALIVE
                    continue
                data = {"stream": line.stream, "step": line.step, "text": line.text}
                yield event("line", data, id_=str(line.pk))
    except Exception as error:
        yield event("error", as_api_error(error, request).body())
    else:
        yield event("end", {})
