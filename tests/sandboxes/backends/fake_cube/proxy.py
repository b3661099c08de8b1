"""CubeProxy: routes by host name or path to envd and to the sandbox's own ports."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from sandboxes.wire.messages import ENVD_PORT
from tests.sandboxes.backends.fake_cube.cluster import Box, Cluster

__all__ = ["proxy"]

_HOST = re.compile(r"(\d+)-([A-Za-z0-9]+)\.")
_PATH = re.compile(r"/sandbox/([A-Za-z0-9]+)/(\d+)(/.*)")
_HOP = {"host", "connection", "transfer-encoding", "keep-alive"}
_TOKENS = ("e2b-traffic-access-token", "cube-traffic-access-token")
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def proxy(cluster: Cluster, *, seen: list[Request]) -> Starlette:
    async def relay(request: Request) -> Response:
        seen.append(request)
        scripted = cluster.faults.next("proxy")
        if scripted is not None:
            return scripted.response()
        target = _target(request)
        if target is None:
            return _problem(400, 310400, "bad host")
        port, sandbox_id, path = target
        if sandbox_id in cluster.killed:
            return _problem(410, 310410, "sandbox has been killed")
        box = cluster.boxes.get(sandbox_id)
        if box is None:
            return _problem(500, 310507, "sandbox metadata missing")
        return await _to_box(cluster, box, request, port, path)

    return Starlette(routes=[Route("/{path:path}", relay, methods=_METHODS)])


def _target(request: Request) -> tuple[int, str, str] | None:
    if by_path := _PATH.fullmatch(request.url.path):
        return int(by_path[2]), by_path[1], by_path[3]
    by_host = _HOST.match(request.headers.get("host", ""))
    return (int(by_host[1]), by_host[2], request.url.path) if by_host else None


async def _to_box(cluster: Cluster, box: Box, request: Request, port: int, path: str) -> Response:
    given = next((request.headers[name] for name in _TOKENS if name in request.headers), None)
    if box.token is not None and given != box.token:
        return Response(status_code=403)
    if box.state != "running":
        if not box.auto_resume or box.state != "paused":
            return _problem(503, 310503, f"sandbox is {box.state}", **{"retry-after": "1"})
        await cluster.resume(box)
    if cluster.faults.envd_starts_after > 0:
        cluster.faults.envd_starts_after -= 1
        return _problem(504, 310504, "upstream timed out")
    box.in_flight += 1
    box.touch()
    try:
        answer = await cluster.engine.send(
            _upstream(cluster, box, request, port, path), stream=True
        )
    except httpx.HTTPError as error:
        box.in_flight -= 1
        return _problem(502, 310502, str(error))
    headers = {k: v for k, v in answer.headers.items() if k not in _HOP}
    return StreamingResponse(_body(box, answer), answer.status_code, headers)


def _upstream(cluster: Cluster, box: Box, request: Request, port: int, path: str) -> httpx.Request:
    dropped = _HOP | set(_TOKENS)
    headers = {k: v for k, v in request.headers.items() if k not in dropped}
    headers |= {"e2b-sandbox-id": box.id, "e2b-sandbox-port": str(port)}
    if port == ENVD_PORT:
        headers["x-access-token"] = box.envd_token  # Cube's envd asks for none
    if box.engine_token:
        headers["e2b-traffic-access-token"] = box.engine_token
    query = f"?{request.url.query}" if request.url.query else ""
    has_body = request.method not in ("GET", "HEAD")
    return cluster.engine.build_request(
        request.method,
        path + query,
        headers=headers,
        content=request.stream() if has_body else None,
        timeout=None,
    )


async def _body(box: Box, answer: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for chunk in answer.aiter_raw():
            yield chunk
    finally:
        await answer.aclose()
        box.in_flight -= 1
        box.touch()


def _problem(status: int, code: int, message: str, **headers: str) -> Response:
    return JSONResponse({"code": code, "message": message}, status, headers)
