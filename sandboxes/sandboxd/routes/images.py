"""Control plane: snapshots and templates."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sandboxes.errors import NotFound, SandboxError
from sandboxes.sandboxd.builds import TemplateBuilds
from sandboxes.sandboxd.routes.replies import Replies, build_reply, snapshot_reply
from sandboxes.sandboxd.service import SandboxService
from sandboxes.types import TemplateStatus
from sandboxes.wire.server.bodies import json_body
from sandboxes.wire.server.newsandbox import refuse_memory_false
from sandboxes.wire.server.pages import page, parse_limit
from sandboxes.wire.server.problems import error_response

__all__ = ["ImageRoutes"]


@dataclass(frozen=True, slots=True)
class ImageRoutes:
    service: SandboxService
    builds: TemplateBuilds
    replies: Replies

    def routes(self) -> list[Route]:
        return [
            Route("/sandboxes/{id}/snapshots", self.create_snapshot, methods=["POST"]),
            Route("/snapshots", self.list_snapshots, methods=["GET"]),
            Route("/templates", self.list_templates, methods=["GET"]),
            Route("/v2/templates", self.list_templates_paged, methods=["GET"]),
            Route("/templates/aliases/{alias:path}", self.alias, methods=["GET"]),
            Route("/sandboxd/templates/{name}/build", self.build, methods=["POST"]),
            Route("/sandboxd/templates/{name}/build", self.build_status, methods=["GET"]),
            # A snapshot's id may hold a slash, sent as %2F and decoded before it gets here.
            Route("/templates/{id:path}", self.delete, methods=["DELETE"]),
        ]

    async def create_snapshot(self, request: Request) -> Response:
        body = await json_body(request)
        refuse_memory_false(body)
        try:
            taken = await self.service.snapshot(request.path_params["id"], body.text("name"))
        except SandboxError as error:
            # All or nothing, but long and large: a client decides itself whether to try again.
            return error_response(error, disk=True, headers={"Should-Retry": "false"})
        return JSONResponse(snapshot_reply(taken), status_code=201)

    async def list_snapshots(self, request: Request) -> Response:
        found = self.service.images.snapshots()
        if source := request.query_params.get("sandboxID"):
            found = [s for s in found if s.record.source_sandbox_id == source]
        if name := request.query_params.get("name"):
            bare = name.rpartition("/")[2].partition(":")[0]
            found = [s for s in found if bare in (s.name, s.record.id)]
        chosen, token = page(
            found,
            key=lambda s: (s.record.created_at.timestamp(), s.record.id),
            limit=parse_limit(request),
            token=request.query_params.get("nextToken"),
        )
        headers = {"X-Next-Token": token} if token else {}
        return JSONResponse([snapshot_reply(snapshot) for snapshot in chosen], headers=headers)

    async def list_templates(self, request: Request) -> Response:
        templates = await self.service.images.templates()
        used = self._used()
        return JSONResponse([self.replies.template(t, used[t.id]) for t in templates])

    async def list_templates_paged(self, request: Request) -> Response:
        chosen, token = page(
            await self.service.images.templates(),
            key=lambda template: (template.created_at.timestamp(), template.id),
            limit=parse_limit(request),
            token=request.query_params.get("nextToken"),
        )
        headers = {"X-Next-Token": token} if token else {}
        used = self._used()
        return JSONResponse([self.replies.template(t, used[t.id]) for t in chosen], headers=headers)

    async def alias(self, request: Request) -> Response:
        alias = request.path_params["alias"]
        found = await self.service.images.find(alias)
        if not found:
            raise NotFound(f"Template “{alias}” not found")
        return JSONResponse({"templateID": found[0], "public": False})

    async def delete(self, request: Request) -> Response:
        await self.service.images.delete(request.path_params["id"])
        return Response(status_code=204)

    async def build(self, request: Request) -> Response:
        body = await json_body(request)
        build = await self.builds.ensure(
            request.path_params["name"], rebuild=body.flag("rebuild", default=False)
        )
        code = 202 if build.status is TemplateStatus.BUILDING else 200
        return JSONResponse(build_reply(build), status_code=code)

    async def build_status(self, request: Request) -> Response:
        return JSONResponse(build_reply(await self.builds.status(request.path_params["name"])))

    def _used(self) -> Counter[str]:
        """Sandboxes alive of each image."""
        return Counter(live.record.image for live in self.service.all())
