"""Data plane: every request for a port of a sandbox goes on to the backend that runs it, as it came.

Who may is decided there: envd asks for the sandbox's own token or a signature made with it, every other
port for the traffic token while inbound is closed. Where a backend's envd asks for nothing, the gateway asks
for the same. Nothing that opens the console goes on.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from django.conf import settings
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from console.gateway.caller import SPACE_HEADER
from console.gateway.places import Place, find_place, signers
from console.gateway.replies import refusal
from console.gateway.sandboxes import detail_of
from sandboxes.client import ProtocolAccess
from sandboxes.errors import SandboxError
from sandboxes.types import Endpoint
from sandboxes.wire.messages import (
    ACCESS_TOKEN_HEADER,
    API_KEY_HEADER,
    ENVD_PORT,
    SANDBOX_ID_HEADER,
    SANDBOX_PORT_HEADER,
)
from sandboxes.wire.server.address import Address, meant_for_envd
from sandboxes.wire.server.asgi import refuse
from sandboxes.wire.server.problems import json_error, not_found_502, port_closed_502
from sandboxes.wire.server.relay import RawHeaders, forwarded, relay_http
from sandboxes.wire.server.signatures import signature_problem, signed_file_url
from sandboxes.wire.server.sockets import relay_websocket
from sandboxes.wire.server.tokens import access_refusal, traffic_refusal

__all__ = ["host_is_ours", "serve", "signer"]

_DROPPED = frozenset(
    name.lower().encode()
    for name in (API_KEY_HEADER, SANDBOX_ID_HEADER, SANDBOX_PORT_HEADER, SPACE_HEADER)
)
_ASKED_FOR_HERE = frozenset({ACCESS_TOKEN_HEADER.lower().encode()})
_API_KEY = re.compile(rb"bearer\s+(?:sky|e2b)_[0-9a-f]{40}\s*", re.ASCII | re.IGNORECASE)


async def serve(address: Address, scope: Scope, receive: Receive, send: Send) -> None:
    if address.port == ENVD_PORT and not _is_public(scope):
        await refuse(json_error(404, f"{scope['path']} does not exist here"), scope, receive, send)
        return
    place = await find_place(address.sandbox_id)
    if place is None:
        await refuse(not_found_502(address.sandbox_id), scope, receive, send)
        return
    try:
        protocol = await place.protocol()
        if place.access_token is not None:
            refused = await _refusal(place, place.access_token, protocol, address.port, scope)
            if refused is not None:
                await refuse(refused, scope, receive, send)
                return
        endpoint, stream = await protocol.dial(place.sandbox, address.port)
    except SandboxError as error:
        await refuse(refusal(error), scope, receive, send, code=1011)
        return
    try:
        headers = _onward(scope["headers"], endpoint, guarded=place.access_token is not None)
        if scope["type"] == "websocket":
            await relay_websocket(stream, headers, scope, receive, send)
        else:
            await relay_http(
                stream,
                headers,
                scope,
                receive,
                send,
                answer=_unbuffered,
                judge=lambda status: _judge(protocol, address, status),
            )
    finally:
        await stream.aclose()


async def signer(scope: Scope) -> Address | None:
    """The sandbox whose token signed this file URL, which names none; one whose signature has expired
    counts too, so that its envd says so."""
    if scope["type"] != "http" or not signed_file_url(scope):
        return None
    stale: Address | None = None
    for sandbox_id, token in await signers():
        problem = signature_problem(token, scope)
        if problem is None:
            return Address(sandbox_id, ENVD_PORT)
        if problem == "signature is already expired":
            stale = Address(sandbox_id, ENVD_PORT)
    return stale


def _is_public(scope: Scope) -> bool:
    """envd has paths of its own for whoever runs it: those end here."""
    return scope["type"] == "http" and meant_for_envd(scope["path"])


async def _refusal(
    place: Place, access_token: str, protocol: ProtocolAccess, port: int, scope: Scope
) -> Response | None:
    """Where the gateway has to ask for the tokens."""
    sandbox = place.sandbox
    if port != ENVD_PORT:
        token = sandbox.traffic_token
        return None if token is None else traffic_refusal(sandbox.id, token, scope)
    refused = access_refusal(access_token, scope, health_is_open=False)
    if refused is None or (scope["method"], scope["path"]) != ("GET", "/health"):
        return refused
    # Anyone may ask whether it lives, but not wake it by asking.
    return None if await _runs(protocol, sandbox.id) else refused


async def _runs(protocol: ProtocolAccess, sandbox_id: str) -> bool:
    try:
        return (await detail_of(protocol, sandbox_id)).get("state") == "running"
    except SandboxError as error:
        if not error.gone:
            raise
        return False


async def _judge(protocol: ProtocolAccess, address: Address, status: int) -> Response | None:
    """What is wrong, in the words that SDKs know, if it is wrong with the sandbox."""
    if status not in protocol.doubtful:
        return None
    sandbox_id = address.sandbox_id
    try:
        if not await _runs(protocol, sandbox_id):
            return not_found_502(sandbox_id)
    except SandboxError:
        return None
    if status in (502, 504):
        return port_closed_502(sandbox_id, address.port)
    return None


def _onward(raw: RawHeaders, endpoint: Endpoint, *, guarded: bool) -> RawHeaders:
    # Behind a socket the server goes by the headers alone, so Host stays what the client said.
    host = None if endpoint.socket_path else urlsplit(endpoint.url).netloc
    ours = {name.lower().encode() for name in endpoint.headers}
    headers = forwarded(
        raw, drop=_DROPPED | ours | (_ASKED_FOR_HERE if guarded else frozenset()), host=host
    )
    kept = [
        (name, _without_our_cookies(value) if name == b"cookie" else value)
        for name, value in headers
        if not (name == b"authorization" and _API_KEY.fullmatch(value))
    ]
    kept += [(name.lower().encode(), value.encode()) for name, value in endpoint.headers.items()]
    return [(name, value) for name, value in kept if value or name != b"cookie"]


def _without_our_cookies(value: bytes) -> bytes:
    ours = {settings.SESSION_COOKIE_NAME.encode(), settings.CSRF_COOKIE_NAME.encode()}
    pairs = [pair.strip() for pair in value.split(b";")]
    return b"; ".join(pair for pair in pairs if pair.partition(b"=")[0] not in ours)


def _unbuffered(headers: RawHeaders) -> RawHeaders:
    """Proxies in front of us would hold streams back."""
    return [*headers, (b"x-accel-buffering", b"no")]


def host_is_ours(headers: Headers) -> bool:
    """A host name under the gateway's own domain."""
    domain = settings.SKILLYARD_GATEWAY_DOMAIN
    host = headers.get("host", "").lower().partition(":")[0]
    return bool(domain) and (host == f"api.{domain}" or host == f"sandbox.{domain}")
