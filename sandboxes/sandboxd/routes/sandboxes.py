"""Control plane: sandboxes. `POST /v2/sandboxes` is SDK 2.51 and newer, `POST /sandboxes` older."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sandboxes.errors import InvalidRequest, NotFound, SandboxError
from sandboxes.sandboxd.idempotency import Receipts
from sandboxes.sandboxd.listing import SandboxFilter
from sandboxes.sandboxd.live import LiveSandbox
from sandboxes.sandboxd.routes.replies import Replies, metric_reply
from sandboxes.sandboxd.service import SandboxService
from sandboxes.wire.messages import DEFAULT_TIMEOUT_S
from sandboxes.wire.server.bodies import Fields, json_body
from sandboxes.wire.server.newsandbox import (
    check_timeout,
    parse_egress,
    parse_new_sandbox,
    refuse_memory_false,
)
from sandboxes.wire.server.pages import page, parse_limit, parse_metadata
from sandboxes.wire.server.problems import error_response

__all__ = ["SandboxRoutes"]

_NO_RETRY = {"Should-Retry": "false"}
_STATES = ("running", "paused")
_METRIC_IDS = 100


@dataclass(frozen=True, slots=True)
class SandboxRoutes:
    service: SandboxService
    receipts: Receipts
    replies: Replies

    def routes(self) -> list[Route]:
        return [
            Route("/sandboxes", self.create_v1, methods=["POST"]),
            Route("/v2/sandboxes", self.create_v2, methods=["POST"]),
            Route("/sandboxes", self.list_v1, methods=["GET"]),
            Route("/v2/sandboxes", self.list_v2, methods=["GET"]),
            Route("/sandboxes/metrics", self.metrics_of_many, methods=["GET"]),
            Route("/sandboxes/{id}", self.get, methods=["GET"]),
            Route("/sandboxes/{id}", self.kill, methods=["DELETE"]),
            Route("/sandboxes/{id}/connect", self.connect_v1, methods=["POST"]),
            Route("/v2/sandboxes/{id}/connect", self.connect_v2, methods=["POST"]),
            Route("/sandboxes/{id}/pause", self.pause, methods=["POST"]),
            Route("/sandboxes/{id}/resume", self.resume, methods=["POST"]),
            Route("/sandboxes/{id}/timeout", self.timeout, methods=["POST"]),
            Route("/sandboxes/{id}/refreshes", self.refresh, methods=["POST"]),
            Route("/sandboxes/{id}/network", self.network, methods=["PUT"]),
            Route("/sandboxes/{id}/metrics", self.metrics, methods=["GET"]),
        ]

    async def create_v1(self, request: Request) -> Response:
        return await self._create(request, v1=True)

    async def create_v2(self, request: Request) -> Response:
        return await self._create(request, v1=False)

    async def _create(self, request: Request, *, v1: bool) -> Response:
        body = await json_body(request)
        spec = parse_new_sandbox(body, v1=v1)
        key = request.headers.get("Idempotency-Key")

        async def create() -> LiveSandbox:
            return await self.service.create(spec)

        try:
            live = await self.receipts.create_once(key, _digest(body), create)
        except SandboxError as error:
            # The engine leaves nothing behind when it refuses, so "busy" and "unavailable" may be
            # tried again; of anything else the client can't know, and a retry might create twice.
            unknown = error.kind in ("timeout", "internal") and key is None
            return error_response(error, headers=_NO_RETRY if unknown else None)
        return JSONResponse(self.replies.sandbox(live.record), status_code=201)

    async def list_v1(self, request: Request) -> Response:
        """Running ones only, in one page."""
        wanted = SandboxFilter(metadata=parse_metadata(request), states=("running",))
        found = [live.record for live in self.service.all() if wanted.matches(live.record)]
        found.sort(key=lambda record: (record.started_at, record.id), reverse=True)
        return JSONResponse([self.replies.listed(record) for record in found])

    async def list_v2(self, request: Request) -> Response:
        wanted = await self._filter(request)
        order = request.query_params.get("order", "desc")
        if order not in ("asc", "desc"):
            raise InvalidRequest("order must be asc or desc")
        found = [live.record for live in self.service.all() if wanted.matches(live.record)]
        chosen, token = page(
            found,
            key=lambda record: (record.started_at, record.id),
            limit=parse_limit(request),
            token=request.query_params.get("nextToken"),
            ascending=order == "asc",
        )
        headers = {"X-Total-Running": str(sum(not record.paused for record in found))}
        if token is not None:
            headers["X-Next-Token"] = token
        return JSONResponse([self.replies.listed(record) for record in chosen], headers=headers)

    async def _filter(self, request: Request) -> SandboxFilter:
        states = [s for s in request.query_params.get("state", "").split(",") if s]
        if unknown := [state for state in states if state not in _STATES]:
            raise InvalidRequest(f"state “{unknown[0]}” is unknown; use running, paused or both")
        template = request.query_params.get("template")
        return SandboxFilter(
            metadata=parse_metadata(request),
            states=states,
            started_after=_started_after(request),
            images=await self.service.images.find(template) if template else None,
        )

    async def get(self, request: Request) -> Response:
        live = self.service.get(request.path_params["id"])
        return JSONResponse(self.replies.detail(live.record))

    async def kill(self, request: Request) -> Response:
        await self.service.kill(request.path_params["id"])
        return Response(status_code=204)

    async def connect_v1(self, request: Request) -> Response:
        body = await json_body(request)
        if body.raw("timeout") is None:
            raise InvalidRequest("timeout is required; give it in seconds")
        return await self._connect(request, body)

    async def connect_v2(self, request: Request) -> Response:
        return await self._connect(request, await json_body(request))

    async def _connect(self, request: Request, body: Fields) -> Response:
        refuse_memory_false(body)
        live, resumed = await self.service.connect(request.path_params["id"], _timeout(body))
        return JSONResponse(self.replies.sandbox(live.record), 201 if resumed else 200)

    async def pause(self, request: Request) -> Response:
        refuse_memory_false(await json_body(request))
        await self.service.pause(request.path_params["id"])
        return Response(status_code=204)

    async def resume(self, request: Request) -> Response:
        body = await json_body(request)
        live = await self.service.resume(request.path_params["id"], _timeout(body))
        return JSONResponse(self.replies.sandbox(live.record), status_code=201)

    async def timeout(self, request: Request) -> Response:
        body = await json_body(request)
        timeout_s = check_timeout(body.raw("timeout"))
        await self.service.set_timeout(request.path_params["id"], timeout_s)
        return Response(status_code=204)

    async def refresh(self, request: Request) -> Response:
        body = await json_body(request)
        duration = body.raw("duration")
        seconds = (
            DEFAULT_TIMEOUT_S if duration is None else check_timeout(duration, what="duration")
        )
        await self.service.refresh(request.path_params["id"], seconds)
        return Response(status_code=204)

    async def network(self, request: Request) -> Response:
        live = self.service.get(request.path_params["id"])
        body = await json_body(request)
        policy = parse_egress(
            body,
            outbound=body.flag("allow_internet_access", default=True),
            # Ours: the protocol's own update leaves inbound as it was created.
            inbound=body.flag("allowPublicTraffic", default=live.record.inbound),
        )
        await self.service.set_network(live.id, policy)
        return Response(status_code=204)

    async def metrics(self, request: Request) -> Response:
        live = self.service.get(request.path_params["id"])
        start, end = _unix(request, "start"), _unix(request, "end")
        return JSONResponse(
            [
                metric_reply(sample)
                for sample in live.samples
                if (start is None or int(sample.taken_at) >= start)
                and (end is None or int(sample.taken_at) <= end)
            ]
        )

    async def metrics_of_many(self, request: Request) -> Response:
        """The newest sample of each, those that exist."""
        ids = [i for i in request.query_params.get("sandbox_ids", "").split(",") if i]
        if not 1 <= len(ids) <= _METRIC_IDS:
            raise InvalidRequest(f"sandbox_ids must list 1 to {_METRIC_IDS} ids, joined by commas")
        newest: dict[str, Any] = {}
        for sandbox_id in ids:
            try:
                live = self.service.get(sandbox_id)
            except NotFound:
                continue
            if live.samples:
                newest[sandbox_id] = metric_reply(live.samples[-1])
        return JSONResponse({"sandboxes": newest})


def _digest(body: Fields) -> str:
    canonical = json.dumps(body.data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _timeout(body: Fields) -> float:
    raw = body.raw("timeout")
    return DEFAULT_TIMEOUT_S if raw is None else check_timeout(raw)


def _started_after(request: Request) -> float | None:
    raw = request.query_params.get("startedAfter")
    if raw is None:
        return None
    try:
        parsed = datetime.fromisoformat(raw)
    except ValueError:
        parsed = None
    if parsed is None or parsed.tzinfo is None:
        raise InvalidRequest("startedAfter must be an ISO 8601 time with its offset from UTC")
    return parsed.timestamp()


def _unix(request: Request, name: str) -> int | None:
    raw = request.query_params.get(name)
    if raw is None:
        return None
    if not raw.isascii() or not raw.isdigit():
        raise InvalidRequest(f"{name} must be a unix time in whole seconds")
    return int(raw)
