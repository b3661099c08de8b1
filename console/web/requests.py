"""The request that every signed-in view gets, and how views answer."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterable
from typing import Any

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django_htmx.middleware import HtmxDetails

from console.audit.services import Actor
from console.tenants.access import Principal
from console.tenants.accounts import address_of
from console.tenants.models import User


class ConsoleRequest(HttpRequest):
    """`principal` is set by `PrincipalMiddleware` on every request of a signed-in person."""

    principal: Principal
    user: User
    htmx: HtmxDetails


def actor_of(request: HttpRequest, user: User | None) -> Actor:
    """For the audit log; None is somebody whose name nobody has."""
    return Actor(
        name="unknown" if user is None else user.get_username(),
        user_id=None if user is None else user.pk,
        address=address_of(request),
        request_id=request.headers.get("X-Request-ID", "")[:64] or uuid.uuid4().hex,
    )


def page(
    request: HttpRequest,
    template: str,
    context: dict[str, Any] | None = None,
    *,
    area: str = "",
    tab: str = "",
    partial: str = "",
    status: int = 200,
) -> HttpResponse:
    """Render a page, or for an htmx request only its `partial` (a `{% partialdef %}` of it). Going back to a
    page that htmx has forgotten takes the whole of it.

    `area` marks the entry of the navigation, `tab` the tab within the page.
    """
    htmx = getattr(request, "htmx", None)
    is_part = htmx and not htmx.boosted and not htmx.history_restore_request
    name = f"{template}#{partial}" if partial and is_part else template
    response = render(
        request, name, {**(context or {}), "page": {"area": area, "tab": tab}}, status=status
    )
    response.headers["Vary"] = "HX-Request, Cookie, Accept-Language"
    return response


def event_stream(events: AsyncIterable[str]) -> StreamingHttpResponse:
    """Server-sent events, each whole as it stands on the wire; no proxy is to keep or gather them."""
    response = StreamingHttpResponse(events, content_type="text/event-stream")
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"
    return response
