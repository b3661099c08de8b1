"""Control plane: snapshots, which belong to the space that made them, templates, and what the backend can."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from console.gateway import images, sandboxes
from console.gateway.caller import Caller, identify
from console.gateway.models import GatewaySnapshot
from console.gateway.narrowing import Forbidden
from console.gateway.replies import NO_RETRY, refusal
from sandboxes.errors import InvalidRequest, NotFound, SandboxError, Unsupported
from sandboxes.wire.messages import ENGINE_PATH, ENVD_VERSION, GATEWAY_ENGINE
from sandboxes.wire.server.bodies import json_body
from sandboxes.wire.server.newsandbox import refuse_memory_false
from sandboxes.wire.server.pages import page, parse_limit
from skills.models import Release

__all__ = ["catalog_routes"]

_MAX_NAME = 100


def catalog_routes() -> list[Route]:
    return [
        Route("/sandboxes/{id}/snapshots", create_snapshot, methods=["POST"]),
        Route("/snapshots", list_snapshots, methods=["GET"]),
        Route("/templates", list_templates, methods=["GET"]),
        Route("/v2/templates", list_templates_paged, methods=["GET"]),
        Route("/templates/aliases/{alias:path}", alias, methods=["GET"]),
        # A snapshot's id may hold a slash, sent as %2F and decoded before it gets here.
        Route("/templates/{id:path}", delete, methods=["DELETE"]),
        Route(ENGINE_PATH, engine, methods=["GET"]),
    ]


async def create_snapshot(request: Request) -> Response:
    caller = await identify(request)
    sandbox = await sandboxes.owned(caller, request.path_params["id"])
    body = await json_body(request)
    refuse_memory_false(body)
    name = images.bare_name(body.text("name") or "")
    if len(name) > _MAX_NAME or await _is_taken(caller, name):
        raise InvalidRequest(
            f"“{name}” can't be a snapshot's name: it means a template here, or is longer than "
            f"{_MAX_NAME} characters; choose another name"
        )
    # Names at the provider are everybody's, and a build's ledger goes by them.
    public = {"name": f"gateway-{caller.space.pk}-{name}"} if name else {}
    try:
        _, taken = await sandbox.call("create snapshot", "POST", "/snapshots", public)
    except SandboxError as error:
        # All or nothing, but long and large: a client decides itself whether to try again.
        return refusal(error, headers=NO_RETRY)
    row = await GatewaySnapshot.objects.acreate(
        space=caller.space,
        backend=sandbox.row.backend,
        snapshot_id=taken["snapshotID"],
        name=name,
        source_sandbox_id=sandbox.row.sandbox_id,
        size_bytes=taken.get("sizeBytes"),
    )
    await caller.audit("sandbox.snapshot", sandbox.row.sandbox_id, snapshot=row.snapshot_id)
    return JSONResponse(_snapshot(row), status_code=201)


async def list_snapshots(request: Request) -> Response:
    caller = await identify(request)
    rows = GatewaySnapshot.objects.filter(space=caller.space, backend=caller.space.backend)
    if source := request.query_params.get("sandboxID"):
        rows = rows.filter(source_sandbox_id=source)
    found = [row async for row in rows]
    if name := request.query_params.get("name"):
        found = [row for row in found if images.bare_name(name) in (row.name, row.snapshot_id)]
    chosen, token = page(
        found,
        key=lambda row: (row.created_at.timestamp(), row.snapshot_id),
        limit=parse_limit(request),
        token=request.query_params.get("nextToken"),
    )
    headers = {"X-Next-Token": token} if token else {}
    return JSONResponse([_snapshot(row) for row in chosen], headers=headers)


async def list_templates(request: Request) -> Response:
    return JSONResponse(await _templates(await identify(request)))


async def list_templates_paged(request: Request) -> Response:
    chosen, token = page(
        await _templates(await identify(request)),
        key=lambda item: (0.0, str(item["templateID"])),
        limit=parse_limit(request),
        token=request.query_params.get("nextToken"),
        ascending=True,
    )
    headers = {"X-Next-Token": token} if token else {}
    return JSONResponse(list(chosen), headers=headers)


async def alias(request: Request) -> Response:
    name = request.path_params["alias"]
    image = await images.find(await identify(request), name)
    if image is None:
        raise NotFound(f"Template “{name}” not found")
    return JSONResponse({"templateID": image.name, "public": False})


async def delete(request: Request) -> Response:
    caller = await identify(request)
    reference = request.path_params["id"]
    name = images.bare_name(reference)
    mine = GatewaySnapshot.objects.filter(space=caller.space).select_related("backend")
    row = await mine.filter(snapshot_id=name).afirst()
    if row is None and name:
        row = await mine.filter(name=name).order_by("-created_at").afirst()
    if row is None:
        if await images.find(caller, reference) is not None:
            raise Forbidden(
                "Releases and base templates are deleted in the console, not through this interface."
            )
        raise NotFound(f"Template “{reference}” not found")
    client = await caller.runtime.client(row.backend)
    if client.snapshots is None:
        raise Unsupported("This backend has no snapshots.")
    await client.snapshots.delete(row.snapshot_id)
    await row.adelete()
    await caller.audit("snapshot.delete", row.snapshot_id)
    return Response(status_code=204)


async def engine(request: Request) -> Response:
    """What the space's backend can do, for clients that ask more than the protocol tells."""
    caller = await identify(request)
    capabilities = asdict(caller.client.capabilities)
    notes = dict(capabilities.pop("notes"))
    capabilities["template_builds"] = False
    notes["template_builds"] = "Base templates are built in the console."
    return JSONResponse(
        {
            "id": f"{GATEWAY_ENGINE}-{caller.space.pk}",
            "engine": GATEWAY_ENGINE,
            "version": "1",
            "capabilities": capabilities,
            "notes": notes,
        }
    )


async def _is_taken(caller: Caller, name: str) -> bool:
    image = await images.find(caller, name) if name else None
    return (
        image is not None
        and not await GatewaySnapshot.objects.filter(
            space=caller.space, snapshot_id=image.template
        ).aexists()
    )


async def _templates(caller: Caller) -> list[dict[str, Any]]:
    """The space's releases, newest first, then the backend's base templates."""
    catalog = caller.client.templates
    known = {template.id async for template in catalog.list()} if catalog is not None else set()
    _, items = await caller.protocol.call("list templates", "GET", "/templates")
    bases = [item for item in items or [] if item.get("templateID") in known]
    size = {name: bases[0][name] if bases else 0 for name in ("cpuCount", "memoryMB", "diskSizeMB")}
    releases = Release.objects.kept().filter(space=caller.space).order_by("-generation")
    found = [
        _release(release, size, current=release.pk == caller.space.current_release_id)
        async for release in releases
        if release.usable_on(caller.space.backend)
    ]
    return [*found, *bases]


def _release(release: Release, size: dict[str, Any], *, current: bool) -> dict[str, Any]:
    name = images.release_name(release)
    names = [name, *(images.CURRENT_NAMES if current else ())]
    created = release.created_at.isoformat()
    return {
        **size,
        "templateID": name,
        "buildID": release.pk,
        "public": False,
        "aliases": names,
        "names": names,
        "createdAt": created,
        "updatedAt": created,
        "createdBy": None,
        "lastSpawnedAt": None,
        "spawnCount": 0,
        "buildCount": 1,
        "envdVersion": ENVD_VERSION,
        "buildStatus": "ready",
        "sizeBytes": release.size_bytes or 0,
    }


def _snapshot(row: GatewaySnapshot) -> dict[str, Any]:
    reply: dict[str, Any] = {
        "snapshotID": row.snapshot_id,
        "names": [row.name] if row.name else [],
        "createdAt": row.created_at.isoformat(),
        "sandboxID": row.source_sandbox_id,
    }
    if row.size_bytes is not None:
        reply["sizeBytes"] = row.size_bytes
    return reply
