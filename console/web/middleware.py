"""What every page request passes through: who acts, and how refusals are shown."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render

from console.tenants.access import Principal
from sandboxes.errors import SandboxError

STATUS_BY_KIND = {
    "not_found": 404,
    "terminal": 410,
    "authentication": 502,
    "invalid_request": 422,
    "unsupported": 422,
    "conflict": 409,
    "capacity": 503,
    "timeout": 504,
    "unavailable": 503,
    "internal": 500,
}


def principal_of(request: HttpRequest) -> Principal | None:
    """Of the signed-in person, made once a request."""
    if not hasattr(request, "_principal"):
        user = request.user
        request._principal = (  # type: ignore[attr-defined]
            Principal.of_user(
                user,
                address=request.META.get("REMOTE_ADDR"),
                request_id=request.headers.get("X-Request-ID", "")[:64] or uuid.uuid4().hex,
            )
            if user.is_authenticated
            else None
        )
    return cast("Principal | None", request._principal)  # type: ignore[attr-defined]


class PrincipalMiddleware:
    """Sets `request.principal` on the views of signed-in people, and turns a `SandboxError` that a
    view did not handle into a page with its sentence."""

    async_capable = True
    sync_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        return self.get_response(request)

    def process_view(
        self, request: HttpRequest, view: Any, args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        request.principal = principal_of(request)  # type: ignore[attr-defined]
        return None

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if not isinstance(error, SandboxError):
            return None
        status = STATUS_BY_KIND.get(error.kind, 500)
        # A part of a page gets a part of a page: the sentence, where the answer would have been.
        template = "components/problem.html" if request.htmx else "error.html"  # type: ignore[attr-defined]
        response = render(request, template, {"error": error, "page": {}}, status=status)
        if error.retry_after_s is not None:
            response.headers["Retry-After"] = str(int(error.retry_after_s))
        return response
