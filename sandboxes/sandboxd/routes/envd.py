"""Port 49983 of every sandbox: the data plane proper, behind the sandbox's access token."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from sandboxes.errors import SandboxError
from sandboxes.sandboxd.engines.base import Engine
from sandboxes.sandboxd.live import LiveSandbox
from sandboxes.sandboxd.routes.files import FileRoutes
from sandboxes.sandboxd.routes.filesystem import FilesystemService
from sandboxes.sandboxd.routes.process import ProcessService
from sandboxes.sandboxd.routes.rpc import serve
from sandboxes.wire.server.problems import error_response, json_error
from sandboxes.wire.server.tokens import access_refusal

__all__ = ["Envd"]

Handler = Callable[[LiveSandbox, Scope, Receive, Send], Awaitable[None]]


class Envd:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._rpc = {**ProcessService(engine).methods, **FilesystemService(engine).methods}
        files = FileRoutes(engine)
        self._routes: dict[str, dict[str, Handler]] = {
            "/health": {"GET": self._health},
            "/files": {"GET": files.download, "POST": files.upload},
            "/files/compose": {"POST": files.compose},
            "/envs": {"GET": self._envs},
            "/metrics": {"GET": self._metrics},
        }

    def refusal(self, live: LiveSandbox, scope: Scope) -> Response | None:
        """The answer to a request without the right token or signature; None lets it in."""
        token = live.record.access_token
        if token is None:
            return None
        # Anyone may ask whether it lives, but not wake it by asking.
        return access_refusal(token, scope, health_is_open=not live.record.paused)

    async def handle(self, live: LiveSandbox, scope: Scope, receive: Receive, send: Send) -> None:
        path, verb = scope["path"], scope["method"]
        if (method := self._rpc.get(path)) is not None:
            if verb == "POST":
                await serve(method, live, scope, receive, send)
                return
            response: Response = json_error(405, f"{path} takes POST only", {"Allow": "POST"})
        elif (verbs := self._routes.get(path)) is None:
            response = json_error(404, f"{path} does not exist here")
        elif (handler := verbs.get(verb)) is not None:
            await handler(live, scope, receive, send)
            return
        else:
            allow = ", ".join(verbs)
            response = json_error(405, f"{path} takes {allow} only", {"Allow": allow})
        await response(scope, receive, send)

    async def _health(self, live: LiveSandbox, scope: Scope, receive: Receive, send: Send) -> None:
        await Response(status_code=204)(scope, receive, send)

    async def _envs(self, live: LiveSandbox, scope: Scope, receive: Receive, send: Send) -> None:
        await JSONResponse(live.record.env)(scope, receive, send)

    async def _metrics(self, live: LiveSandbox, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            usage = await self._engine.usage(live.id)
        except SandboxError as error:
            await error_response(error)(scope, receive, send)
            return
        body = {
            "ts": int(time.time()),
            "cpu_count": usage.cpu_count,
            "cpu_used_pct": usage.cpu_used_pct,
            "mem_total": usage.memory_total_bytes,
            "mem_used": usage.memory_used_bytes,
            "mem_cache": usage.memory_cache_bytes,
            "disk_used": usage.disk_used_bytes,
            "disk_total": usage.disk_total_bytes,
        }
        await JSONResponse(body)(scope, receive, send)
