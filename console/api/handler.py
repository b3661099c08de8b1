"""The API's own way through Django: no page middleware, and a body that is read when it is asked for.

Django's handler stores every body before it looks at the request, and each of its middlewares hops to
a thread and back. Here a call that needs no database needs no thread, so that one process holds
thousands of waiting commands, and an upload streams through. Routing, views, the ORM and errors are
Django's as everywhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextvars import ContextVar
from io import BytesIO
from typing import Any, cast
from urllib.parse import unquote

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler, ASGIRequest, get_script_prefix
from django.core.signals import request_finished
from django.db.backends.signals import connection_created
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.security import SecurityMiddleware
from django.urls import set_script_prefix, set_urlconf

from console.api.authentication import request_id
from console.api.errors import ApiError, as_api_error, refusal
from console.api.incoming import ClientGone, Incoming
from console.api.journal import start_journal

__all__ = ["ApiHandler"]

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
_DRAIN_BYTES = 1024 * 1024

_connected: ContextVar[list[object] | None] = ContextVar("connected", default=None)


def _note_connection(sender: object, **_: object) -> None:
    opened = _connected.get()
    if opened is not None:
        opened.append(sender)


connection_created.connect(_note_connection, dispatch_uid="console.api.handler")


class ApiRequest(ASGIRequest):
    incoming: Incoming
    request_id: str

    def __init__(self, scope: Scope, receive: Receive) -> None:
        scope = {**scope, "path": _path(scope)}
        super().__init__(scope, BytesIO())
        self.incoming = Incoming(receive)
        self.request_id = request_id(self)


def _path(scope: Scope) -> str:
    """The path with only its segments decoded: `%2F` within one stays `%2F`, and `%` is `%25`, so
    that an id may hold a slash. UnicodeDecodeError for what is no UTF-8."""
    raw = scope.get("raw_path")
    if not raw:
        return str(scope["path"])
    segments = raw.partition(b"?")[0].decode("ascii").split("/")
    decoded = (unquote(segment, errors="strict") for segment in segments)
    return "/".join(text.replace("%", "%25").replace("/", "%2F") for text in decoded)


class ApiHandler(ASGIHandler):
    """An ASGI application. `lifespan` is answered by `aclose` at the end."""

    request_class = ApiRequest

    def load_middleware(self, is_async: bool = False) -> None:
        self._view_middleware: list[Any] = []
        self._template_response_middleware: list[Any] = []
        self._exception_middleware: list[Any] = []
        self._middleware_chain = self._checked
        self._security = SecurityMiddleware(lambda request: None)  # type: ignore[arg-type]

    async def _checked(self, request: HttpRequest) -> HttpResponseBase:
        """What every request and answer of the API passes through."""
        try:
            request.get_host()
            response: Any = self._security.process_request(request)
            if response is None:
                response = await self._get_response_async(request)  # type: ignore[attr-defined]
        except Exception as error:
            told = as_api_error(error, request)
            response = refusal(told)
        response = self._security.process_response(request, response)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        if not response.streaming:
            response.headers.setdefault("Content-Length", str(len(response.content)))
        response.headers["X-Request-ID"] = getattr(request, "request_id", "")
        return cast("HttpResponseBase", response)

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        # Django's own also logs every refusal as a warning, in a thread.
        set_urlconf(settings.ROOT_URLCONF)
        response: HttpResponseBase = await self._middleware_chain(request)
        return response

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        start_journal()
        set_script_prefix(get_script_prefix(scope))
        opened: list[object] = []
        _connected.set(opened)
        try:
            request = ApiRequest(scope, receive)
        except (UnicodeDecodeError, ValueError):
            problem = ApiError("invalid_request", "The address holds bytes that are no UTF-8.")
            await self.send_response(refusal(problem), send)
            return
        work = asyncio.create_task(self._answer(request, send))
        watch = asyncio.create_task(request.incoming.wait_gone())
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            work.cancel()
            watch.cancel()
            results = await asyncio.gather(work, watch, return_exceptions=True)
            await self._close(request, results[0], used_database=bool(opened))

    async def _answer(self, request: ApiRequest, send: Send) -> HttpResponseBase:
        response = await self.get_response_async(request)
        if not request.incoming.complete:
            await self._skip_rest(request, response)
        try:
            await self.send_response(response, send)
        except asyncio.CancelledError:
            log.debug("the client of %s left", request.path)
        return response

    async def _skip_rest(self, request: ApiRequest, response: HttpResponseBase) -> None:
        """Read a little of what nobody wanted, so that the client gets to read the answer."""
        try:
            async for _ in request.incoming.chunks(_DRAIN_BYTES):
                pass
        except (ApiError, ClientGone):
            response.headers["Connection"] = "close"

    async def _close(
        self,
        request: ApiRequest,
        response: HttpResponseBase | BaseException,
        *,
        used_database: bool,
    ) -> None:
        def close() -> None:
            if isinstance(response, HttpResponseBase):
                response.close()
            else:
                request_finished.send(sender=self.__class__)
            request.close()

        if isinstance(response, Exception):
            log.error("%s %s broke off", request.method, request.path, exc_info=response)
        if used_database:
            # Where the connection is: in this request's own thread.
            await sync_to_async(close)()
        else:
            close()

    async def aclose(self) -> None:
        """Write what is still to be written."""
        await start_journal().aclose()
