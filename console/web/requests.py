"""The request that every signed-in view gets, and how views answer."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django_htmx.middleware import HtmxDetails

from console.tenants.access import Principal
from console.tenants.models import User


class ConsoleRequest(HttpRequest):
    """`principal` is set by `PrincipalMiddleware` on every request of a signed-in person."""

    principal: Principal
    user: User
    htmx: HtmxDetails


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
    """Render a page, or for an htmx request only its `partial` (a `{% partialdef %}` of it).

    `area` marks the entry of the navigation, `tab` the tab within the page.
    """
    boosted = getattr(request, "htmx", None) and not request.htmx.boosted  # type: ignore[attr-defined]
    name = f"{template}#{partial}" if partial and boosted else template
    response = render(
        request, name, {**(context or {}), "page": {"area": area, "tab": tab}}, status=status
    )
    response.headers["Vary"] = "HX-Request, Cookie, Accept-Language"
    return response
