"""The templates of a backend: list, have built, delete. Its snapshots are releases', and are listed only."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse

from console.api.backends.serializers import (
    EnsureTemplateSerializer,
    ImagesSerializer,
    TemplateBuildSerializer,
)
from console.api.backends.views import TAG, BackendView
from console.api.schema import operation
from console.api.views import answer
from console.fleet.images import (
    NeededTemplate,
    Template,
    delete_template,
    ensure_template,
    list_images,
    template_status,
)
from console.tenants.access import Action
from sandboxes.types import SnapshotInfo, TemplateBuild
from skills.models import Release


class Images(BackendView):
    needs = {"GET": Action.VIEW}

    @operation(
        "images_list",
        "Templates and snapshots at a backend, told apart",
        tag=TAG,
        response=ImagesSerializer,
        errors=(502, 504),
    )
    async def get(self, request: HttpRequest, backend: str) -> HttpResponse:
        found = await list_images(await self.abackend(backend))
        return answer(
            {
                "templates": [_template(item) for item in found.templates],
                "snapshots": [_snapshot(info, release) for info, release in found.snapshots],
                "needed": [_needed(item) for item in found.needed],
                "may_build": found.may_build,
                "note": found.note,
            }
        )


class TemplateDetail(BackendView):
    """Of one template, in the path as `template`: its id or a name, URL-encoded."""

    needs = {"GET": Action.VIEW, "PUT": Action.MANAGE, "DELETE": Action.MANAGE}

    @operation(
        "templates_get",
        "How a template is, or how far its build",
        tag=TAG,
        response=TemplateBuildSerializer,
        errors=(502, 504),
    )
    async def get(self, request: HttpRequest, backend: str, template: str) -> HttpResponse:
        build = await template_status(backend=await self.abackend(backend), name=template)
        return answer(_build(build))

    @operation(
        "templates_ensure",
        "Have a template built unless it is there, or a new version of it",
        tag=TAG,
        request=EnsureTemplateSerializer,
        response=TemplateBuildSerializer,
        status=202,
        errors=(409, 502, 504),
        description="Idempotent. Ask for it until its status is `ready` or `failed`.",
    )
    async def put(self, request: HttpRequest, backend: str, template: str) -> HttpResponse:
        build = await ensure_template(
            backend=await self.abackend(backend),
            name=template,
            actor=self.actor,
            rebuild=self.valid(EnsureTemplateSerializer)["rebuild"],
        )
        return answer(_build(build), status=202)

    @operation(
        "templates_delete",
        "Delete a template that nothing stands on",
        tag=TAG,
        status=204,
        errors=(409, 502, 504),
        description="409 names the releases and spaces that stand on it.",
    )
    async def delete(self, request: HttpRequest, backend: str, template: str) -> HttpResponse:
        row = await self.abackend(backend)
        await delete_template(backend=row, template_id=template, actor=self.actor)
        return HttpResponse(status=204)


def _template(item: Template) -> dict[str, Any]:
    info = item.info
    return {
        "id": info.id,
        "names": list(info.names),
        "status": info.status.value,
        "created_at": info.created_at,
        "size_bytes": info.size_bytes,
        "error": info.error,
        "dependents": item.dependents,
    }


def _snapshot(info: SnapshotInfo, release: Release | None) -> dict[str, Any]:
    return {
        "id": info.id,
        "names": list(info.names),
        "created_at": info.created_at,
        "size_bytes": info.size_bytes,
        "release_id": release.pk if release else None,
        "space_id": release.space_id if release else None,
    }


def _needed(item: NeededTemplate) -> dict[str, Any]:
    return {
        "name": item.name,
        "users": item.users,
        "build": _build(item.build) if item.build else None,
        "problem": item.problem,
    }


def _build(build: TemplateBuild) -> dict[str, Any]:
    return {
        "name": build.name,
        "status": build.status.value,
        "step": build.step,
        "fraction": build.fraction,
        "error": build.error,
        "template_id": build.template_id,
    }
