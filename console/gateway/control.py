"""Control plane: sandboxes. `/v2` is what SDKs since 2.51 create and connect by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from console.fleet.models import SessionState
from console.gateway import images, making, sandboxes
from console.gateway.caller import Caller, identify
from console.gateway.narrowing import narrow
from console.gateway.replies import NO_RETRY, handle, listed, refusal
from console.gateway.tags import checked
from console.policies.models import NetworkPolicyRevision
from sandboxes.errors import InvalidRequest, SandboxError
from sandboxes.sessions import TAG_SESSION
from sandboxes.wire.bodies import network_update
from sandboxes.wire.encoding import encode_metadata_filter
from sandboxes.wire.messages import DEFAULT_TIMEOUT_S
from sandboxes.wire.server.bodies import Fields, json_body
from sandboxes.wire.server.newsandbox import check_timeout, parse_egress, refuse_memory_false
from sandboxes.wire.server.pages import parse_limit, parse_metadata

__all__ = ["sandbox_routes"]

_MOST_IDS = 100
_LIST_PARAMETERS = ("state", "startedAfter", "order", "nextToken")


def sandbox_routes() -> list[Route]:
    return [
        Route("/sandboxes", create_v1, methods=["POST"]),
        Route("/v2/sandboxes", create_v2, methods=["POST"]),
        Route("/sandboxes", list_v1, methods=["GET"]),
        Route("/v2/sandboxes", list_v2, methods=["GET"]),
        Route("/sandboxes/metrics", metrics_of_many, methods=["GET"]),
        Route("/sandboxes/{id}", get, methods=["GET"]),
        Route("/sandboxes/{id}", kill, methods=["DELETE"]),
        Route("/sandboxes/{id}/connect", connect_v1, methods=["POST"]),
        Route("/v2/sandboxes/{id}/connect", connect_v2, methods=["POST"]),
        Route("/sandboxes/{id}/pause", pause, methods=["POST"]),
        Route("/sandboxes/{id}/resume", resume, methods=["POST"]),
        Route("/sandboxes/{id}/timeout", set_timeout, methods=["POST"]),
        Route("/sandboxes/{id}/refreshes", refresh, methods=["POST"]),
        Route("/sandboxes/{id}/network", update_network, methods=["PUT"]),
        Route("/sandboxes/{id}/metrics", metrics, methods=["GET"]),
    ]


async def create_v1(request: Request) -> Response:
    return await _create(request, v1=True)


async def create_v2(request: Request) -> Response:
    return await _create(request, v1=False)


async def _create(request: Request, *, v1: bool) -> Response:
    caller = await identify(request)
    key = request.headers.get("Idempotency-Key")
    try:
        answer, metadata = await making.create(
            caller, await json_body(request), v1=v1, idempotency_key=key
        )
    except SandboxError as error:
        # After these nobody knows whether there is a sandbox; a second try might make a second one.
        unknown = error.kind in ("timeout", "internal") and key is None
        return refusal(error, headers=NO_RETRY if unknown else None)
    return JSONResponse(handle(answer, metadata), status_code=201)


async def list_v1(request: Request) -> Response:
    """Running ones, in one page."""
    caller = await identify(request)
    items: list[dict[str, Any]] = []
    params: dict[str, str] = {"state": "running", "limit": "100"}
    while True:
        headers, page = await _page(caller, request, params)
        items += page
        if (token := headers.get("x-next-token")) is None or token == params.get("nextToken"):
            return JSONResponse(items)
        params["nextToken"] = token


async def list_v2(request: Request) -> Response:
    caller = await identify(request)
    params = {name: value for name in _LIST_PARAMETERS if (value := request.query_params.get(name))}
    params["limit"] = str(parse_limit(request))
    if template := request.query_params.get("template"):
        image = await images.find(caller, template)
        if image is None:
            return JSONResponse([])
        params["template"] = image.template
    headers, items = await _page(caller, request, params)
    kept = {
        name: headers[name] for name in ("x-next-token", "x-total-running") if headers.get(name)
    }
    return JSONResponse(items, headers=kept)


async def _page(
    caller: Caller, request: Request, params: Mapping[str, str]
) -> tuple[Mapping[str, str], list[dict[str, Any]]]:
    """Filtered by the backend, and again here: some take no notice of a filter."""
    asked = parse_metadata(request)
    wanted = {**checked(asked), **caller.tags}
    if TAG_SESSION in asked:
        wanted[TAG_SESSION] = asked[TAG_SESSION]
    headers, page = await caller.protocol.call(
        "list",
        "GET",
        "/v2/sandboxes",
        params={**params, "metadata": encode_metadata_filter(wanted)},
    )
    mine = [item for item in page or [] if _matches(item.get("metadata") or {}, wanted)]
    return headers, await listed(mine)


def _matches(metadata: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    # The sandboxes of builds belong to the space too, but to no session.
    return TAG_SESSION in metadata and all(
        metadata.get(key) == value for key, value in wanted.items()
    )


async def get(request: Request) -> Response:
    sandbox = await sandboxes.owned(await identify(request), request.path_params["id"])
    return JSONResponse((await listed([await sandbox.detail()]))[0])


async def kill(request: Request) -> Response:
    caller = await identify(request)
    await sandboxes.kill(caller, await sandboxes.owned(caller, request.path_params["id"]))
    return Response(status_code=204)


async def connect_v1(request: Request) -> Response:
    body = await json_body(request)
    if body.raw("timeout") is None:
        raise InvalidRequest("timeout is required; give it in seconds")
    return await _connect(request, body)


async def connect_v2(request: Request) -> Response:
    return await _connect(request, await json_body(request))


async def resume(request: Request) -> Response:
    return await _connect(request, await json_body(request), status=201)


async def _connect(request: Request, body: Fields, *, status: int | None = None) -> Response:
    caller = await identify(request)
    refuse_memory_false(body)
    raw = body.raw("timeout")
    timeout_s = DEFAULT_TIMEOUT_S if raw is None else int(check_timeout(raw))
    sandbox = await sandboxes.owned(caller, request.path_params["id"])
    if status is not None:
        _, answer = await sandbox.call("resume", "POST", "/resume", {"timeout": timeout_s})
        resumed = True
    else:
        resumed, answer = await sandbox.protocol.connect(
            sandbox.row.sandbox_id, timeout_s=timeout_s
        )
    row = await sandboxes.register(caller, sandbox.row.backend, answer)
    if resumed:
        await sandboxes.note_state(caller, sandbox.row, SessionState.ACTIVE, "resumed")
    metadata = (await sandbox.detail()).get("metadata") or {}
    reply = handle(row.opened(answer), metadata)
    return JSONResponse(reply, status_code=status or (201 if resumed else 200))


async def pause(request: Request) -> Response:
    caller = await identify(request)
    refuse_memory_false(await json_body(request))
    sandbox = await sandboxes.owned(caller, request.path_params["id"])
    await sandbox.call("pause", "POST", "/pause", {})
    await sandboxes.note_state(caller, sandbox.row, SessionState.PAUSED, "paused")
    return Response(status_code=204)


async def set_timeout(request: Request) -> Response:
    sandbox = await sandboxes.owned(await identify(request), request.path_params["id"])
    timeout_s = int(check_timeout((await json_body(request)).raw("timeout")))
    await sandbox.call("set timeout", "POST", "/timeout", {"timeout": timeout_s})
    return Response(status_code=204)


async def refresh(request: Request) -> Response:
    sandbox = await sandboxes.owned(await identify(request), request.path_params["id"])
    raw = (await json_body(request)).raw("duration")
    seconds = DEFAULT_TIMEOUT_S if raw is None else int(check_timeout(raw, what="duration"))
    await sandbox.call("refresh", "POST", "/refreshes", {"duration": seconds})
    return Response(status_code=204)


async def update_network(request: Request) -> Response:
    """Replaces what a request asked before; the space's policy holds beneath it. `allowPublicTraffic` is no
    part of the protocol's update: with it, the inbound switch is moved as well, where the backend can."""
    caller = await identify(request)
    sandbox = await sandboxes.owned(caller, request.path_params["id"])
    body = await json_body(request)
    outbound_said = body.raw("allow_internet_access") is not None
    inbound_said = body.raw("allowPublicTraffic") is not None
    outbound = body.flag("allow_internet_access", default=True)
    inbound = body.flag("allowPublicTraffic", default=False)
    revision = await NetworkPolicyRevision.objects.filter(space=caller.space).alatest("number")
    wish = parse_egress(body, outbound=outbound, inbound=inbound)
    policy = narrow(
        revision.policy(),
        outbound=outbound if outbound_said else None,
        inbound=inbound if inbound_said else None,
        allow=wish.allow,
        deny=wish.deny,
    )
    if inbound_said:
        await sandbox.set_policy(policy)
    else:
        await sandbox.call("update network", "PUT", "/network", network_update(policy))
    await caller.audit(
        "sandbox.network",
        sandbox.row.sandbox_id,
        outbound=policy.outbound,
        allow=list(policy.allow),
        deny=list(policy.deny),
        **({"inbound": policy.inbound} if inbound_said else {}),
    )
    return Response(status_code=204)


async def metrics(request: Request) -> Response:
    sandbox = await sandboxes.owned(await identify(request), request.path_params["id"])
    params = {name: v for name in ("start", "end") if (v := request.query_params.get(name))}
    _, samples = await sandbox.call("metrics", "GET", "/metrics", params=params)
    return JSONResponse(samples or [])


async def metrics_of_many(request: Request) -> Response:
    caller = await identify(request)
    ids = [i for i in request.query_params.get("sandbox_ids", "").split(",") if i]
    if not 1 <= len(ids) <= _MOST_IDS:
        raise InvalidRequest(f"sandbox_ids must list 1 to {_MOST_IDS} ids, joined by commas")
    newest: dict[str, Any] = {}
    for sandbox_id in ids:
        try:
            sandbox = await sandboxes.owned(caller, sandbox_id)
            _, samples = await sandbox.call("metrics", "GET", "/metrics")
        except SandboxError as error:
            if not error.gone:
                raise
            continue
        if samples:
            newest[sandbox_id] = samples[-1]
    return JSONResponse({"sandboxes": newest})
