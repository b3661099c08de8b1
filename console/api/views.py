"""What every view of the API is made of.

A view names its right per method in `needs`; a method without one can't be defined. Plain methods may
use the ORM: each runs as a whole in a thread. Methods of the session runtime are async and touch the
database through `recent` only.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
from collections.abc import Mapping
from functools import cache
from typing import IO, Any, ClassVar, cast

from asgiref.sync import sync_to_async
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.utils.encoders import JSONEncoder
from rest_framework.views import APIView

from console.api import idempotency, limits
from console.api.authentication import principal_of, request_id
from console.api.denials import note_denied
from console.api.errors import ApiError, as_api_error, refusal
from console.api.incoming import ClientGone, Incoming, parse_json
from console.api.recent import Recent
from console.audit.services import Actor
from console.tenants.access import Action, Principal
from console.tenants.models import Space, Tenant

__all__ = [
    "ApiView",
    "MemberView",
    "Nowhere",
    "SpaceView",
    "TenantView",
    "answer",
    "forget_spaces",
    "live_space",
    "sees",
]

METHODS = ("get", "post", "put", "patch", "delete")
MAX_JSON_BYTES = 2 * 1024 * 1024


def answer(
    data: Any, *, status: int = 200, headers: Mapping[str, str] | None = None, **more: Any
) -> HttpResponse:
    """The envelope of success. `more` stands beside `data`, as a list's `next_cursor` does."""
    body = {"success": True, "data": data, **more}
    text = json.dumps(body, cls=JSONEncoder, ensure_ascii=False, separators=(",", ":"))
    # What a sandbox printed may hold lone surrogates only by a fault of ours; never break on it.
    return HttpResponse(
        text.encode(errors="replace"),
        status=status,
        content_type="application/json",
        headers=dict(headers or {}),
    )


class ApiView(APIView):
    view_is_async = True
    http_method_names = [*METHODS, "head"]

    needs: ClassVar[Mapping[str, Action | None]] = {}
    """Method to right; None is anyone with good credentials."""
    streams: ClassVar[frozenset[str]] = frozenset()
    """Methods that read the body themselves."""
    creates: ClassVar[bool] = False
    """POST makes something, so it honours Idempotency-Key."""
    limit: ClassVar[str | None] = None
    """The bucket (of API_RATES) that a method which changes something takes a token from."""
    max_body_bytes: ClassVar[int] = MAX_JSON_BYTES

    principal: Principal
    incoming: Incoming
    data: Any
    """The body as JSON; an empty one is {}."""
    quota_fields: dict[str, str]
    """What the answer tells of the limits that were looked at for it."""
    spooled: IO[bytes]
    """The body of a method that both streams and creates."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        missing = [name for name in METHODS if hasattr(cls, name) and name.upper() not in cls.needs]
        if missing:
            raise TypeError(f"{cls.__name__} says not what right {', '.join(missing)} needs")

    async def dispatch(  # type: ignore[override]
        self, request: HttpRequest, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        if not hasattr(request, "request_id"):
            request.request_id = request_id(request)  # type: ignore[attr-defined]
        self.incoming = Incoming.of(request)
        self.quota_fields: dict[str, str] = {}
        try:
            response = await self._respond(request, kwargs)
        except ClientGone:
            return HttpResponse(status=400)
        except Exception as error:
            told = as_api_error(error, request)
            if isinstance(error, Http404 | PermissionDenied) and hasattr(self, "principal"):
                await note_denied(self.principal, self.right, request.path, told.status)
            response = refusal(told)
        finally:
            if hasattr(self, "spooled"):
                self.spooled.close()
        for name, value in self.quota_fields.items():
            response.headers.setdefault(name, value)
        return response

    async def _respond(self, request: HttpRequest, ids: dict[str, Any]) -> HttpResponseBase:
        self.principal = await principal_of(request)
        handler = self._handler(request)
        if any("\0" in str(value) for value in ids.values()):
            raise Http404
        if any("\0" in text for values in request.GET.lists() for text in (values[0], *values[1])):
            raise ApiError("invalid_request", "The query holds a NUL character; leave it out.")
        if str(request.method).lower() not in self.streams:
            body = await self.incoming.read(self.max_body_bytes)
            self.data = _json(request, body)
            digest = hashlib.sha256(body).hexdigest()
        elif self.creates:
            self.spooled = await self.incoming.spool(self.max_body_bytes)
            digest = await asyncio.to_thread(_digest, self.spooled)
        if request.method != "POST" or not self.creates:
            return await self._run(handler, request, ids)
        return await idempotency.once(
            self.principal,
            request,
            f"{request.path}\n{digest}",
            lambda: self._run(handler, request, ids),
        )

    def _handler(self, request: HttpRequest) -> Any:
        method = str(request.method).lower()
        found = getattr(self, method, None) if method in self.http_method_names else None
        if found is None:
            allowed = ", ".join(name.upper() for name in METHODS if hasattr(self, name))
            raise ApiError(
                "method_not_allowed",
                f"{request.method} can't be used here; use {allowed}.",
                headers={"Allow": allowed},
            )
        return found

    async def _run(
        self, handler: Any, request: HttpRequest, ids: dict[str, Any]
    ) -> HttpResponseBase:
        ids = dict(ids)
        if inspect.iscoroutinefunction(inspect.unwrap(handler)):
            await self.aenter(ids)
            await self._take()
            response: HttpResponseBase = await handler(request, **ids)
            return response
        if self.limit is not None:
            await sync_to_async(self.enter)(ids)
            await self._take()
            return cast("HttpResponseBase", await sync_to_async(handler)(request, **ids))

        def work() -> HttpResponseBase:
            self.enter(ids)
            answered: HttpResponseBase = handler(request, **ids)
            return answered

        return await sync_to_async(work)()

    async def _take(self) -> None:
        if self.limit is not None and self.request.method not in ("GET", "HEAD"):
            self.quota_fields = await limits.take(self.limit, self.principal)

    @property
    def right(self) -> Action | None:
        """The right that this request needs."""
        method = "GET" if self.request.method == "HEAD" else str(self.request.method)
        return self.needs.get(method)

    @property
    def actor(self) -> Actor:
        return self.principal.actor

    def enter(self, ids: dict[str, Any]) -> None:
        """Check the right, in the thread of a plain method, and take from `ids` what is known."""

    async def aenter(self, ids: dict[str, Any]) -> None:
        """As `enter`, before an async method."""

    def valid(self, serializer: type[serializers.Serializer[Any]]) -> dict[str, Any]:
        """The body as this serializer checks it; a ValidationError names the field."""
        checked: dict[str, Any] = _checker(serializer).run_validation(self.data)
        return checked


class Nowhere(ApiView):
    """Every address that no route has."""

    schema = None

    async def dispatch(  # type: ignore[override]
        self, request: HttpRequest, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        return refusal(ApiError("not_found", "The API has no such address; see /api/docs/."))


class SpaceView(ApiView):
    """Of one space, in the path as `space`. An async method gets a row that may be seconds old."""

    space: Space

    def enter(self, ids: dict[str, Any]) -> None:
        self.space = self.principal.space(ids.pop("space"), _required(self))

    async def aenter(self, ids: dict[str, Any]) -> None:
        self.space = await live_space(self.principal, ids.pop("space"), _required(self))


class TenantView(ApiView):
    """Of one tenant, in the path as `tenant`."""

    tenant: Tenant

    def enter(self, ids: dict[str, Any]) -> None:
        self.tenant = self.principal.tenant(ids.pop("tenant"), _required(self))

    async def aenter(self, ids: dict[str, Any]) -> None:
        await sync_to_async(self.enter)(ids)


class MemberView(TenantView):
    """As TenantView, but whoever may see one of the tenant's spaces sees the tenant's things too."""

    def enter(self, ids: dict[str, Any]) -> None:
        if self.right is not Action.VIEW:
            super().enter(ids)
            return
        tenant = Tenant.objects.filter(pk=ids.pop("tenant")).first()
        if tenant is None or not sees(self.principal, tenant.pk):
            raise Http404
        self.tenant = tenant


def sees(principal: Principal, tenant_id: str) -> bool:
    """Has the right to view the tenant, or any of its spaces."""
    return principal.everything or any(
        grant.tenant_id == tenant_id and Action.VIEW in grant.actions for grant in principal.grants
    )


_spaces: Recent[str, Space] = Recent()


def forget_spaces() -> None:
    """Ask the database again from now on, in this process."""
    _spaces.forget()


async def live_space(principal: Principal, space_id: str, action: Action) -> Space:
    """As `Principal.space`, from what was read within the last seconds."""
    space = await _spaces.get(space_id, lambda: _load_space(space_id))
    if space is None or not principal.may(
        Action.VIEW, tenant_id=space.tenant_id, space_id=space.pk
    ):
        raise Http404
    principal.require(action, tenant_id=space.tenant_id, space_id=space.pk)
    if action is not Action.VIEW:
        space.require_kept()
    return space


async def _load_space(space_id: str) -> Space | None:
    rows = Space.objects.select_related("tenant", "backend", "current_release")
    return await rows.filter(pk=space_id).afirst()


def _required(view: ApiView) -> Action:
    if view.right is None:
        raise TypeError(f"{type(view).__name__} needs a right for {view.request.method}")
    return view.right


@cache
def _checker(serializer: type[serializers.Serializer[Any]]) -> serializers.Serializer[Any]:
    # Making one copies all of its fields, which takes longer than the check; a check leaves it as it was.
    return serializer()


def _json(request: HttpRequest, body: bytes) -> Any:
    if not body:
        return {}
    media = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        raise ApiError(
            "unsupported_media_type", "Send the body as JSON, with Content-Type: application/json."
        )
    return parse_json(body)


def _digest(file: IO[bytes]) -> str:
    digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    file.seek(0)
    return digest
