"""Every other port of a sandbox: a reverse proxy for HTTP and WebSocket, behind the inbound switch.

With inbound open anyone who can reach sandboxd reaches the port; closed, the traffic token opens it.
"""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sandboxes.errors import SandboxError, Unavailable
from sandboxes.sandboxd.engines.base import Engine
from sandboxes.sandboxd.live import LiveSandbox
from sandboxes.wire.server.asgi import refuse
from sandboxes.wire.server.problems import error_response, port_closed_502
from sandboxes.wire.server.relay import forwarded, relay_http
from sandboxes.wire.server.sockets import relay_websocket
from sandboxes.wire.server.tokens import traffic_refusal

__all__ = ["PortProxy"]


class PortProxy:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def refusal(self, live: LiveSandbox, scope: Scope) -> Response | None:
        """403 without the traffic token while inbound is closed; None lets the request in."""
        if live.record.inbound:
            return None
        return traffic_refusal(live.id, live.record.traffic_token, scope)

    async def handle(
        self, live: LiveSandbox, port: int, scope: Scope, receive: Receive, send: Send
    ) -> None:
        try:
            connection = await self._engine.dial(live.id, port)
        except Unavailable:
            await refuse(port_closed_502(live.id, port), scope, receive, send, code=1011)
            return
        except SandboxError as error:
            await refuse(error_response(error), scope, receive, send, code=1011)
            return
        try:
            mask = live.record.mask_request_host
            host = mask.replace("${PORT}", str(port)) if mask is not None else None
            headers = forwarded(scope["headers"], host=host)
            if scope["type"] == "websocket":
                await relay_websocket(connection, headers, scope, receive, send)
            else:
                await relay_http(connection, headers, scope, receive, send)
        finally:
            await connection.aclose()
