"""The E2B protocol for outsiders, in front of any backend: one ASGI application."""

from __future__ import annotations

import logging

from django.conf import settings
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from console.fleet.database import Database
from console.gateway.catalog import catalog_routes
from console.gateway.control import sandbox_routes
from console.gateway.dataplane import host_is_ours, serve, signer
from console.gateway.replies import NO_RETRY, refusal
from sandboxes.errors import InvalidRequest, SandboxError
from sandboxes.wire.messages import SANDBOX_ID_HEADER, SANDBOX_PORT_HEADER
from sandboxes.wire.server.address import Address, locate, meant_for_envd
from sandboxes.wire.server.asgi import refuse
from sandboxes.wire.server.problems import json_error
from sandboxes.wire.server.unsupported import unsupported_routes

__all__ = ["GatewayApp", "is_for_gateway"]

log = logging.getLogger(__name__)

_CONTROL_ROOTS = frozenset(
    {"sandboxes", "snapshots", "templates", "volumes", "volumecontent", "secrets", "sandboxd"}
)


def is_for_gateway(scope: Scope) -> bool:
    """Whether a request is the gateway's: by its headers or host, else by its path."""
    if scope["type"] not in ("http", "websocket"):
        return False
    headers = Headers(scope=scope)
    if SANDBOX_ID_HEADER in headers or SANDBOX_PORT_HEADER in headers or host_is_ours(headers):
        return True
    try:
        if _located(headers) is not None:
            return True
    except InvalidRequest:
        return True
    path = scope["path"]
    if scope["type"] != "http":
        return False
    first, _, rest = path.lstrip("/").partition("/")
    if first in ("v2", "v3"):
        first = rest.partition("/")[0]
    return first in _CONTROL_ROOTS or meant_for_envd(path)


class GatewayApp:
    def __init__(self) -> None:
        self._control = _control()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Whatever goes wrong, a client gets JSON unless its answer has already begun."""
        begun = False

        async def tracked(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._dispatch(scope, receive, tracked)
        except ClientDisconnect:
            return
        except Exception:
            if begun or scope["type"] != "http":
                raise
            log.exception("%s %s failed", scope["method"], scope["path"])
            await json_error(500, "The gateway failed; its log says why", NO_RETRY)(
                scope, receive, send
            )

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            address = _located(Headers(scope=scope))
        except InvalidRequest as error:
            await refuse(refusal(error), scope, receive, send)
            return
        if address is None:
            address = await signer(scope)
        if address is not None:
            await serve(address, scope, receive, send)
        elif scope["type"] == "http" and meant_for_envd(scope["path"]):
            missing = f"missing header {SANDBOX_ID_HEADER}: it says which sandbox is meant"
            await json_error(400, missing)(scope, receive, send)
        elif scope["type"] == "websocket":
            await refuse(json_error(404, "There is no WebSocket here"), scope, receive, send)
        else:
            async with Database():
                await self._control(scope, receive, send)


def _located(headers: Headers) -> Address | None:
    return locate(headers, domain=settings.SKILLYARD_GATEWAY_DOMAIN.lower())


def _control() -> ASGIApp:
    app = Starlette(
        routes=[*sandbox_routes(), *catalog_routes(), *unsupported_routes()],
        exception_handlers={
            SandboxError: _on_sandbox_error,
            HTTPException: _on_http_error,
            ClientDisconnect: _on_disconnect,
        },
    )
    app.router.redirect_slashes = False
    return app


async def _on_sandbox_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, SandboxError):
        raise error
    if error.kind == "internal":
        log.error("%s %s: %s %s", request.method, request.url.path, error, error.detail)
    return refusal(error)


async def _on_http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    texts = {
        404: f"{request.url.path} does not exist here",
        405: f"{request.url.path} does not take {request.method}",
    }
    message = texts.get(error.status_code, str(error.detail))
    return json_error(error.status_code, message, error.headers)


async def _on_disconnect(request: Request, error: Exception) -> Response:
    return json_error(499, "The client left before its request was read")
