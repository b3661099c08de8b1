"""Which plane a request belongs to, and which sandbox and port.

By the headers E2b-Sandbox-Id and E2b-Sandbox-Port; by the host name `{port}-{id}.{domain}`; or,
for a signed file URL that names no sandbox, by the sandbox whose token signed it. Anything else is
control plane.
"""

from __future__ import annotations

import logging

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandboxes.errors import Conflict, InvalidRequest, NotFound, SandboxError
from sandboxes.sandboxd.live import LiveSandbox
from sandboxes.sandboxd.routes.envd import Envd
from sandboxes.sandboxd.routes.proxy import PortProxy
from sandboxes.sandboxd.service import SandboxService
from sandboxes.wire.messages import ENVD_PORT, SANDBOX_ID_HEADER
from sandboxes.wire.server.address import Address, locate, meant_for_envd
from sandboxes.wire.server.asgi import refuse
from sandboxes.wire.server.problems import error_response, json_error, not_found_502
from sandboxes.wire.server.signatures import signature_problem, signed_file_url

__all__ = ["Edge"]

log = logging.getLogger(__name__)


class Edge:
    """The outermost application."""

    def __init__(self, service: SandboxService, control: ASGIApp) -> None:
        self._service = service
        self._control = control
        self._envd = Envd(service.engine)
        self._proxy = PortProxy(service.engine)

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
            await json_error(500, "sandboxd failed; its log says why")(scope, receive, send)

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            address = locate(Headers(scope=scope)) or self._signed(scope)
        except InvalidRequest as error:
            await refuse(error_response(error), scope, receive, send)
            return
        if address is not None:
            await self._to_sandbox(address, scope, receive, send)
        elif scope["type"] == "http" and meant_for_envd(scope["path"]):
            missing = f"missing header {SANDBOX_ID_HEADER}: it says which sandbox is meant"
            await json_error(400, missing)(scope, receive, send)
        else:
            await self._control(scope, receive, send)

    def _signed(self, scope: Scope) -> Address | None:
        if scope["type"] != "http" or not signed_file_url(scope):
            return None
        stale: Address | None = None
        for live in self._service.all():
            if live.record.access_token is None:
                continue
            problem = signature_problem(live.record.access_token, scope)
            if problem is None:
                return Address(live.id, ENVD_PORT)
            if problem == "signature is already expired":
                stale = Address(live.id, ENVD_PORT)
        return stale

    async def _to_sandbox(
        self, address: Address, scope: Scope, receive: Receive, send: Send
    ) -> None:
        try:
            live = self._service.get(address.sandbox_id)
            refusal = self._refusal(live, address.port, scope)
            if refusal is None:
                await self._service.wake(live)
        except NotFound:
            refusal = not_found_502(address.sandbox_id)
        except SandboxError as error:
            refusal = error_response(error)
        if refusal is not None:
            await refuse(refusal, scope, receive, send)
        elif address.port == ENVD_PORT and scope["type"] == "http":
            await self._to_envd(live, scope, receive, send)
        else:
            await self._proxy.handle(live, address.port, scope, receive, send)

    def _refusal(self, live: LiveSandbox, port: int, scope: Scope) -> Response | None:
        if port != ENVD_PORT:
            return self._proxy.refusal(live, scope)
        if scope["type"] != "http":
            return json_error(404, "This port takes no WebSocket")
        return self._envd.refusal(live, scope)

    async def _to_envd(self, live: LiveSandbox, scope: Scope, receive: Receive, send: Send) -> None:
        """A sandbox that died since anyone last looked answers as one that is gone."""
        dead = not live.processes.live() and await self._found_dead(live, scope)
        if dead:
            await not_found_502(live.id)(scope, receive, send)
            return
        await self._envd.handle(live, scope, receive, send)

    async def _found_dead(self, live: LiveSandbox, scope: Scope) -> bool:
        try:
            return await self._service.died(live)
        except Conflict:
            return False
