"""The whole daemon as one ASGI application."""

from __future__ import annotations

import hmac
import logging
import os
import shutil
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from sandboxes.errors import SandboxError
from sandboxes.sandboxd.builds import TemplateBuilds
from sandboxes.sandboxd.edge import Edge
from sandboxes.sandboxd.engines.base import Engine, Limits
from sandboxes.sandboxd.idempotency import Receipts
from sandboxes.sandboxd.identity import identity
from sandboxes.sandboxd.routes.images import ImageRoutes
from sandboxes.sandboxd.routes.replies import Replies
from sandboxes.sandboxd.routes.sandboxes import SandboxRoutes
from sandboxes.sandboxd.service import SandboxService
from sandboxes.sandboxd.store import Store
from sandboxes.wire.messages import API_KEY_HEADER, EngineInfo
from sandboxes.wire.server.problems import error_response, json_error
from sandboxes.wire.server.unsupported import unsupported_routes

__all__ = ["Daemon", "RequireApiKey"]

log = logging.getLogger(__name__)

_MIB = 1024 * 1024
_OPEN_PATH = "/sandboxd/health"


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """`app` trusts whoever reaches it (the unix socket's mode decides who); wrap it in
    `RequireApiKey` before it listens on TCP."""

    app: ASGIApp
    service: SandboxService
    builds: TemplateBuilds

    @classmethod
    async def start(
        cls,
        engine: Engine,
        data_dir: Path,
        *,
        limits: Limits | None = None,
        domain: str | None = None,
        templates_dir: Path | None = None,
    ) -> Daemon:
        """Opens the store and adopts what still runs. Unsupported if the host lacks something. Base
        templates are built into `templates_dir`."""
        store = Store(data_dir / "sandboxd.sqlite3")
        loaded = await store.open()
        service = SandboxService(engine, store, limits=limits)
        receipts = Receipts(service, store)
        receipts.load(loaded.receipts)
        await service.start(loaded)
        replies = Replies(
            limits=service.limits,
            cpu_count=round(service.limits.cpus or os.cpu_count() or 1),
            disk_size_mb=shutil.disk_usage(data_dir).total // _MIB,
            domain=domain,
        )
        builds = TemplateBuilds(service.images, templates_dir)
        control = _control(service, receipts, replies, builds, own_id=identity(data_dir))
        return cls(app=Edge(service, control), service=service, builds=builds)

    async def aclose(self) -> None:
        """Sandboxes live on, builds don't. Idempotent."""
        await self.builds.aclose()
        await self.service.aclose()


class RequireApiKey:
    """For TCP. Requests to a sandbox carry that sandbox's own token, so the edge judges those."""

    def __init__(self, app: Edge | ASGIApp, api_key: str) -> None:
        self._app = app
        self._api_key = api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope = {**scope, "sandboxd.authorized": self._authorized(scope)}
        await self._app(scope, receive, send)

    def _authorized(self, scope: Scope) -> bool:
        given = Headers(scope=scope).get(API_KEY_HEADER, "")
        return hmac.compare_digest(given.encode(), self._api_key)


class _Authorized:
    """The control plane's door: what `RequireApiKey` found out, and open without it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        elif scope.get("sandboxd.authorized", True) or scope["path"] == _OPEN_PATH:
            await self._app(scope, receive, send)
        else:
            message = f"The API key is missing or wrong; send it as {API_KEY_HEADER}"
            await json_error(401, message)(scope, receive, send)


def _control(
    service: SandboxService,
    receipts: Receipts,
    replies: Replies,
    builds: TemplateBuilds,
    *,
    own_id: str,
) -> ASGIApp:
    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def engine(request: Request) -> Response:
        return JSONResponse(_engine_info(service.engine, builds.refusal(), own_id))

    app = Starlette(
        routes=[
            Route("/sandboxd/health", health, methods=["GET"]),
            Route("/sandboxd/engine", engine, methods=["GET"]),
            *SandboxRoutes(service, receipts, replies).routes(),
            *ImageRoutes(service, builds, replies).routes(),
            *unsupported_routes(),
        ],
        exception_handlers={
            SandboxError: _on_sandbox_error,
            HTTPException: _on_http_error,
            ClientDisconnect: _on_disconnect,
            Exception: _on_bug,
        },
    )
    app.router.redirect_slashes = False
    return _Authorized(app)


def _engine_info(engine: Engine, builds_none: str, own_id: str) -> EngineInfo:
    """`builds_none` says why no template can be built here; empty if they can."""
    capabilities: dict[str, Any] = asdict(engine.capabilities)
    notes = dict(capabilities.pop("notes"))
    capabilities["template_builds"] = not builds_none
    if builds_none:
        notes["template_builds"] = builds_none
    try:
        own_version = version("skillyard")
    except PackageNotFoundError:
        own_version = "0"
    return {
        "id": own_id,
        "engine": engine.name,
        "version": own_version,
        "capabilities": capabilities,
        "notes": notes,
    }


async def _on_sandbox_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, SandboxError):
        raise error
    if error.kind == "internal":
        log.error("%s %s: %s %s", request.method, request.url.path, error, error.detail)
    return error_response(error)


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


async def _on_bug(request: Request, error: Exception) -> Response:
    headers = {"Should-Retry": "false"}
    return json_error(500, "sandboxd failed; its log says why", headers)
