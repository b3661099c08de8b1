"""A port of a session's sandbox, seen through the console by those who may run things there.

`/sessions/PK/ports/PORT/…` sends a signed-in person on to the same path with a ticket in it, and that is
relayed, HTTP and WebSocket, whether or not inbound is open. What comes back runs in an origin of its own
and knows nothing of the console: no cookie passes in either direction.
"""

from __future__ import annotations

import re
from urllib.parse import quote, urlsplit

from asgiref.sync import sync_to_async
from django.conf import settings
from django.utils.translation import gettext as _
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from console.fleet.database import Database
from console.fleet.models import Session
from console.fleet.runtime import shared_runtime
from console.fleet.sessions import session_key
from console.web.preview import tickets
from sandboxes.client import ByteStream, InboundAccess
from sandboxes.errors import SandboxError
from sandboxes.types import Endpoint, Sandbox
from sandboxes.wire.server.asgi import refuse
from sandboxes.wire.server.relay import OURS, RawHeaders, forwarded, relay_http
from sandboxes.wire.server.sockets import relay_websocket

__all__ = ["PreviewApp", "is_preview"]

_PATH = re.compile(
    r"/sessions/(?P<pk>[0-9a-z_]+)/ports/(?P<port>[1-9][0-9]{0,4})(?:/(?P<rest>.*))?", re.DOTALL
)
_TICKET = re.compile(r"~(?P<ticket>[^/]+)(?P<path>/.*)?", re.DOTALL)
_CONFINED = b"sandbox allow-scripts allow-forms"
_NOT_SENT = OURS | {b"cookie", b"authorization", b"referer", b"origin"}
_NOT_RETURNED = frozenset(
    {
        b"set-cookie",
        b"clear-site-data",
        b"strict-transport-security",
        b"public-key-pins",
        b"service-worker-allowed",
        b"alt-svc",
        b"nel",
        b"report-to",
        b"reporting-endpoints",
        b"access-control-allow-origin",
        b"access-control-allow-credentials",
    }
)


def is_preview(scope: Scope) -> bool:
    return scope["type"] in ("http", "websocket") and bool(_PATH.fullmatch(scope["path"]))


class PreviewApp:
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _PATH.fullmatch(scope["path"])
        if found is None or int(found["port"]) > 65535:
            await refuse(_missing(), scope, receive, send)
            return
        pk, port = found["pk"], int(found["port"])
        ticketed = _TICKET.fullmatch(found["rest"] or "")
        async with Database():
            if ticketed is None:
                answer = await sync_to_async(_admit)(HTTPConnection(scope), pk, port, found["rest"])
                await refuse(answer, scope, receive, send)
                return
            session = await sync_to_async(_ticket_holder_s)(ticketed["ticket"], pk, port)
            if session is None:
                await refuse(_missing(), scope, receive, send)
                return
            try:
                sandbox, endpoint, stream = await _dial(session, port)
            except SandboxError as error:
                answer = PlainTextResponse(error.message, 502, headers=_plain())
                await refuse(answer, scope, receive, send)
                return
        prefix = f"/sessions/{pk}/ports/{port}/~{ticketed['ticket']}"
        try:
            await _relay(prefix, sandbox, port, endpoint, stream, scope, receive, send)
        finally:
            await stream.aclose()


def _admit(connection: HTTPConnection, pk: str, port: int, rest: str | None) -> Response:
    """A ticket for a person who may, as a way on; the sign-in page for nobody in particular."""
    user = tickets.signed_in(connection)
    here = quote(connection.scope["path"])
    if user is None:
        from django.shortcuts import resolve_url

        return RedirectResponse(f"{resolve_url(settings.LOGIN_URL)}?next={here}", 302)
    session = tickets.session_for(user, pk)
    if session is None:
        return _missing()
    ticket = tickets.issue(connection=connection, user=user, session=session, port=port)
    query = connection.scope["query_string"].decode("latin-1")
    target = f"/sessions/{pk}/ports/{port}/~{ticket}/{quote(rest or '')}"
    return RedirectResponse(f"{target}?{query}" if query else target, 302, headers=_plain())


def _ticket_holder_s(ticket: str, pk: str, port: int) -> Session | None:
    user = tickets.holder(ticket, pk=pk, port=port)
    return None if user is None else tickets.session_for(user, pk)


async def _dial(session: Session, port: int) -> tuple[Sandbox, Endpoint, ByteStream]:
    """To the session's sandbox, woken if it is paused, never made anew."""
    runtime = shared_runtime()
    client = await runtime.client(session.space.backend)
    sandbox = await runtime.sessions.lookup(
        key=session_key(session.space, session.session_id),
        client=client,
        backend=session.space.backend_id,
    )
    if sandbox is None or client.protocol is None:
        raise SandboxError(
            _("The session has no sandbox now; run something and it gets a new one.")
        )
    endpoint, stream = await client.protocol.dial(sandbox, port)
    return sandbox, endpoint, stream


async def _relay(
    prefix: str,
    sandbox: Sandbox,
    port: int,
    endpoint: Endpoint,
    stream: ByteStream,
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    host = f"localhost:{port}" if endpoint.socket_path else urlsplit(endpoint.url).netloc
    headers = forwarded(scope["headers"], drop=_NOT_SENT, host=host)
    onward = {**endpoint.headers, "X-Forwarded-Prefix": prefix}
    if sandbox.traffic_token:
        onward[InboundAccess.TOKEN_HEADER] = sandbox.traffic_token
    headers += [(name.lower().encode(), value.encode()) for name, value in onward.items()]
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    inner = {**scope, "raw_path": _after_ticket(raw), "root_path": ""}
    if scope["type"] == "websocket":
        await relay_websocket(stream, headers, inner, receive, send)
        return
    await relay_http(
        stream, headers, inner, receive, send, answer=lambda back: _confined(back, prefix)
    )


def _after_ticket(raw: bytes) -> bytes:
    """`/sessions/PK/ports/PORT/~TICKET/rest` → `/rest`, still encoded as it came."""
    return b"/" + b"/".join(raw.split(b"/")[6:])


def _confined(headers: RawHeaders, prefix: str) -> RawHeaders:
    kept = [
        (name, _moved(value, prefix) if name == b"location" else value)
        for name, value in headers
        if name not in _NOT_RETURNED
    ]
    return [
        *kept,
        (b"content-security-policy", _CONFINED),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-opener-policy", b"same-origin"),
        # Its own origin is opaque, so even its own calls are cross-origin; the ticket is what opens.
        (b"access-control-allow-origin", b"*"),
        (b"x-accel-buffering", b"no"),
    ]


def _moved(location: bytes, prefix: str) -> bytes:
    """A redirect within the server stays within the preview."""
    parts = urlsplit(location.decode("latin-1"))
    if parts.hostname not in (None, "localhost", "127.0.0.1") or not parts.path.startswith("/"):
        return location
    return (prefix + parts._replace(scheme="", netloc="").geturl()).encode("latin-1")


def _missing() -> Response:
    return PlainTextResponse(
        _(
            "There is no such preview, or its link is too old; open it again from the session's page."
        ),
        404,
        headers=_plain(),
    )


def _plain() -> dict[str, str]:
    return {"Cache-Control": "no-store", "Content-Security-Policy": "default-src 'none'"}
