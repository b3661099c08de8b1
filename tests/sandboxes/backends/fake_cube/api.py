"""CubeAPI: the control plane's routes, as the version has them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, unquote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.sandboxes.backends.fake_cube.cluster import NEVER, Box, Cluster, Refused, Snapshot

__all__ = ["api"]

Handler = Callable[[Request], Awaitable[Response]]
_LISTED_AT_MOST = 10_000


def api(cluster: Cluster, *, api_key: str, seen: list[Request]) -> Starlette:
    profile = cluster.profile
    routes = Routes(cluster)
    table: list[tuple[str, str, str, Handler]] = [
        ("POST", "/sandboxes", "create", routes.create),
        ("GET", "/sandboxes", "list", routes.list),
        ("GET", "/v2/sandboxes", "list", routes.list),
        ("GET", "/sandboxes/{id}", "get", routes.get),
        ("DELETE", "/sandboxes/{id}", "delete", routes.delete),
        ("POST", "/sandboxes/{id}/pause", "pause", routes.pause),
        ("POST", "/sandboxes/{id}/connect", "connect", routes.connect),
        ("POST", "/sandboxes/{id}/resume", "connect", routes.resume),
        ("POST", "/sandboxes/{id}/timeout", "timeout", routes.timeout),
        ("POST", "/sandboxes/{id}/snapshots", "snapshot", routes.snapshot),
        ("GET", "/snapshots", "snapshots", routes.snapshots),
        ("GET", "/templates", "templates", routes.templates),
        *([("GET", "/templates/compat", "compat", routes.compat)] if profile.compat else []),
        ("GET", "/templates/{id}", "template", routes.template),
        ("POST", "/templates/{id}", "rebuild", routes.rebuild),
        ("GET", "/templates/{id}/builds/{job}/status", "build", routes.build),
        ("DELETE", "/templates/{id}", "delete_image", routes.delete_image),
        ("GET", "/health", "health", routes.health),
    ]
    if profile.volumes:
        table.append(("GET", "/volumes", "volumes", routes.volumes))
    if profile.network_update:
        table.append(("PUT", "/sandboxes/{id}/network", "network", routes.network))
    if profile.v2_create:
        table.append(("POST", "/v2/sandboxes", "create", routes.create))
        table.append(("POST", "/v2/sandboxes/{id}/connect", "connect", routes.connect))

    def wrapped(op: str, handler: Handler) -> Handler:
        async def endpoint(request: Request) -> Response:
            await request.body()
            seen.append(request)
            authorization = request.headers.get("authorization", "").removeprefix("Bearer ")
            if op != "health" and api_key not in (
                "",
                authorization,
                request.headers.get("x-api-key"),
            ):
                return problem(401, "unauthorized")
            scripted = cluster.faults.next(op)
            if scripted is not None and not scripted.after:
                return scripted.response()
            try:
                answer = await handler(request)
            except Refused as refused:
                answer = problem(refused.status, refused.message)
                answer.headers.update(refused.headers)
            return scripted.response() if scripted is not None else answer

        return endpoint

    return Starlette(
        routes=[Route(path, wrapped(op, fn), methods=[method]) for method, path, op, fn in table],
        # The framework there answers an unknown route without a body.
        exception_handlers={
            404: lambda request, error: Response(status_code=404),
            405: lambda request, error: Response(status_code=405),
        },
    )


def problem(status: int, message: str) -> Response:
    return JSONResponse({"code": status, "message": message}, status)


async def json_of(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.body())
    except ValueError:
        raise Refused(400, "Failed to parse the request body as JSON") from None
    assert isinstance(body, dict)
    return body


def nanoseconds(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.%f") + "789Z"


class Routes:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.faults = cluster.faults

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "sandboxes": 0})

    async def volumes(self, request: Request) -> Response:
        return JSONResponse([])

    async def create(self, request: Request) -> Response:
        body = await json_of(request)
        if "templateID" not in body:
            return Response("Failed to deserialize the JSON body: missing templateID", 422)
        for key in ("host-mount", "hostdir-mount"):
            if key in (body.get("metadata") or {}):
                raise Refused(400, f"{key} is not allowed here")
        if self.cluster.profile.v2_create and request.url.path.startswith("/v2"):
            body = from_v2(body)
        box = await self.cluster.create(body)
        return JSONResponse({**self.reply(box), **self.token(box)}, 201)

    def token(self, box: Box) -> dict[str, str]:
        """Told once, when it is made."""
        return {"trafficAccessToken": box.token} if box.token else {}

    def reply(self, box: Box) -> dict[str, Any]:
        return {
            "templateID": box.template_id,
            "sandboxID": box.id,
            "clientID": "10.0.0.7",
            "envdVersion": "0.2.0",
            "domain": "cube.app",
        }

    def listed(self, box: Box) -> dict[str, Any]:
        if box.forgotten:
            return {**self.reply(box), "templateID": "", "state": box.state}
        item = {
            **self.reply(box),
            "startedAt": nanoseconds(box.started_at),
            "cpuCount": 2,
            "memoryMB": 2048,
            "diskSizeMB": 0,
            "state": box.state,
        }
        if box.metadata:
            item["metadata"] = dict(box.metadata)
        if (end := self.cluster.end_at(box)) is not None:
            item["endAt"] = nanoseconds(end)
        return item

    async def list(self, request: Request) -> Response:
        """The page is cut first and filtered then; page tokens are ignored."""
        query = request.query_params
        boxes = list(self.cluster.boxes.values())
        if not self.cluster.profile.paused_are_listed:
            boxes = [box for box in boxes if box.state != "paused"]
        capped = 200 if request.url.path == "/sandboxes" else _LISTED_AT_MOST
        boxes = boxes[: min(int(query.get("limit", 100)), capped)]
        if "state" in query:
            wanted = query["state"].split(",")
            if wanted == ["paused"] and self.faults.paused_filter_is_empty:
                boxes = []
            boxes = [box for box in boxes if box.state in wanted]
        pairs = parse_qsl(query.get("metadata", ""))
        wanted_pairs = {unquote(key): unquote(value) for key, value in pairs}
        boxes = [
            box for box in boxes if all(box.metadata.get(k) == v for k, v in wanted_pairs.items())
        ]
        return JSONResponse([self.listed(box) for box in boxes])

    async def get(self, request: Request) -> Response:
        return JSONResponse(self.listed(self.cluster.box(request.path_params["id"])))

    async def delete(self, request: Request) -> Response:
        box = self.cluster.box(request.path_params["id"])
        if box.state == "pausing":
            raise Refused(503, "130490 sandbox is pausing", retry_after="2")
        if box.state == "paused":
            how = self.cluster.profile.delete_paused
            if how == "refused":
                raise Refused(500, "sandbox is not in normal state")
            if how == "wakes":
                await self.cluster.resume(box)
        await self.cluster.kill(box)
        return Response(status_code=204)

    async def pause(self, request: Request) -> Response:
        await self.cluster.pause(self.cluster.box(request.path_params["id"]))
        return Response(status_code=204)

    async def connect(self, request: Request) -> Response:
        body = await json_of(request)
        box = self.cluster.box(request.path_params["id"])
        timeout = body.get("timeout")
        if timeout is not None and (timeout == 0 or timeout < NEVER):
            raise Refused(400, "timeout must be positive or -1")
        if box.state in ("pausing", "resuming"):
            raise Refused(409, f"sandbox is {box.state}")
        if box.state == "running":
            self._extend(box, timeout)
        elif self.faults.lost_resumes > 0:
            self.faults.lost_resumes -= 1
        else:
            if timeout is not None:
                box.timeout_s = timeout
            await self.cluster.resume(box)
            if self.faults.swept_after_connect > 0:
                self.faults.swept_after_connect -= 1
                await self.cluster.pause(box)
        return JSONResponse(self.reply(box))

    def _extend(self, box: Box, timeout: int | None) -> None:
        if timeout == NEVER:
            box.touch(NEVER)
        elif timeout is not None and box.timeout_s != NEVER:
            box.touch(max(timeout, box.timeout_s))

    async def resume(self, request: Request) -> Response:
        box = self.cluster.box(request.path_params["id"])
        await json_of(request)
        if box.state == "running":
            raise Refused(409, "sandbox is already running")
        await self.cluster.resume(box)
        return JSONResponse(self.reply(box), 201)

    async def timeout(self, request: Request) -> Response:
        box = self.cluster.box(request.path_params["id"])
        box.touch(int((await json_of(request))["timeout"]))
        if box.state != "running":
            box.deadline = None
        return Response(status_code=204)

    async def network(self, request: Request) -> Response:
        box = self.cluster.box(request.path_params["id"])
        body = await json_of(request)
        if box.state != "running":
            raise Refused(409, "sandbox is not running")
        answer = await self.cluster.ask(
            "PUT",
            f"/sandboxes/{box.id}/network",
            {
                "allow_internet_access": body.get("allowInternetAccess", True),
                "allowOut": body.get("allowOut") or [],
                "denyOut": body.get("denyOut") or [],
            },
        )
        if answer.status_code >= 400:
            raise Refused(400, answer.json()["message"])
        return Response(status_code=204)

    # Snapshots and templates

    async def snapshot(self, request: Request) -> Response:
        box = self.cluster.box(request.path_params["id"])
        body = await json_of(request)
        made = await self.cluster.snapshot(box, body.get("name"))
        return JSONResponse({"snapshotID": made.id, "names": made.names}, 201)

    async def snapshots(self, request: Request) -> Response:
        query = request.query_params
        items = list(self.cluster.snapshots.values())
        if "sandboxID" in query:
            items = [item for item in items if item.origin == query["sandboxID"]]
        token = query.get("nextToken", "")
        start = int(token) if token else 0
        limit = min(int(query.get("limit", 20)), self.cluster.profile.page_limit)
        page = items[start : start + limit]
        headers = {}
        if self.faults.repeat_page_token:
            page, headers = items[:limit], {"x-next-token": "1"}
        elif start + limit < len(items):
            headers["x-next-token"] = str(start + limit)
        elif self.faults.empty_token_restarts:
            headers["x-next-token"] = ""
        return JSONResponse([listed_snapshot(item) for item in page], headers=headers)

    async def templates(self, request: Request) -> Response:
        items = [
            cube_template(item)
            for item in (await self.cluster.ask("GET", "/templates")).json()
            if not item["templateID"].startswith("snap-")
        ]
        ids = set(self.cluster.snapshots)
        if self.faults.deleted_stay_in_templates:
            ids |= self.cluster.deleted_snapshots
        items += [{"templateID": key, "status": "READY", "names": [], "aliases": []} for key in ids]
        return JSONResponse([*items, *self.faults.extra_template_items])

    async def compat(self, request: Request) -> Response:
        return JSONResponse(
            {
                "nodes": ["node-1", "node-2"],
                "templates": [
                    {
                        "templateID": wanted,
                        "replicas": [
                            {"nodeID": "node-1", "compatStatus": "OK"},
                            {"nodeID": "node-2", "compatStatus": "STALE"},
                        ],
                    }
                    for wanted in self.cluster.outdated
                ],
            }
        )

    async def template(self, request: Request) -> Response:
        wanted = request.path_params["id"]
        listed = json.loads(bytes((await self.templates(request)).body))
        for item in listed:
            if wanted == item["templateID"] or wanted in item["aliases"]:
                if wanted in self.cluster.deleted_snapshots:
                    break
                jobs = self.cluster.template_jobs
                job = (
                    {"jobID": jobs[item["templateID"]]["id"]} if item["templateID"] in jobs else {}
                )
                return JSONResponse({**item, **job, "replicas": [], "networkType": "tap"})
        raise Refused(404, f"template {wanted} not found")

    async def rebuild(self, request: Request) -> Response:
        wanted = request.path_params["id"]
        await json_of(request)
        await self.template(request)
        job = {"id": f"job-{len(self.cluster.template_jobs) + 1}", "status": "BUILDING"}
        self.cluster.template_jobs[wanted] = {**job, "progress": 0, "message": "pulling"}
        body = {"jobID": job["id"], "templateID": wanted, "status": "BUILDING", "progress": 0}
        return JSONResponse(body, 202)

    async def build(self, request: Request) -> Response:
        wanted = request.path_params["id"]
        job = self.cluster.template_jobs.get(wanted)
        if job is None or job["id"] != request.path_params["job"]:
            raise Refused(404, "build not found")
        return JSONResponse({"buildID": job["id"], "templateID": wanted, **job})

    async def delete_image(self, request: Request) -> Response:
        wanted = request.path_params["id"]
        snapshot = self.cluster.snapshots.get(wanted)
        if snapshot is not None:
            await self.cluster.delete_snapshot(snapshot)
            return Response(status_code=204, headers={"x-operation-id": "op-1"})
        again = self.cluster.profile.repeated_snapshot_delete
        if wanted in self.cluster.deleted_snapshots and again == 204:
            return Response(status_code=204)
        raise Refused(404, f"template {wanted} not found")


def from_v2(body: dict[str, Any]) -> dict[str, Any]:
    """The E2B form of the same."""
    if "autoPause" not in body:
        return body
    lifecycle = {
        "onTimeout": "pause" if body["autoPause"] else "kill",
        "autoResume": (body.get("autoResume") or {}).get("enabled", False),
    }
    return {**body, "lifecycle": lifecycle}


def listed_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "snapshotID": snapshot.id,
        "names": snapshot.names,
        "status": snapshot.status,
        "originSandboxID": snapshot.origin,
        "createdAt": nanoseconds(snapshot.created_at),
    }


def cube_template(item: dict[str, Any]) -> dict[str, Any]:
    names = [*item["names"]]
    return {
        "templateID": f"tpl-{item['templateID']}",
        "public": False,
        "status": "READY",
        "createdAt": item["createdAt"],
        "aliases": names,
        "names": names,
    }
