"""What every page request passes through: who acts, and how refusals are shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django_htmx.http import HttpResponseClientRedirect

from console.tenants.access import Principal
from console.tenants.models import User
from console.tenants.sign_ins import seen
from console.web.requests import actor_of
from console.web.zones import zone_of
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


OPEN_WITHOUT_TWO_STEP = {
    "web:two-step",
    "web:start-two-step",
    "web:confirm-two-step",
    "web:sign-out",
    "set_language",
}
"""What is left to a person whose tenant wants two-step sign-in of them, until they have it."""


def principal_of(request: HttpRequest) -> Principal | None:
    """Of the signed-in person, made once a request."""
    if not hasattr(request, "_principal"):
        user, principal = request.user, None
        if isinstance(user, User):
            actor = actor_of(request, user)
            principal = Principal.of_user(user, address=actor.address, request_id=actor.request_id)
        request._principal = principal  # type: ignore[attr-defined]
    return cast("Principal | None", request._principal)  # type: ignore[attr-defined]


def _is_open_without_two_step(request: HttpRequest) -> bool:
    """The API refuses by itself, in its own words."""
    match = request.resolver_match
    name = match.view_name if match else ""
    return name in OPEN_WITHOUT_TWO_STEP or request.path.startswith("/api/")


class PrincipalMiddleware:
    """Sets `request.principal` on the views of signed-in people, shows times in their zone, leads those who
    owe two-step sign-in to it, and turns a `SandboxError` that a view did not handle into a page with its
    sentence."""

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
        timezone.activate(zone_of(request))
        principal = principal_of(request)
        request.principal = principal  # type: ignore[attr-defined]
        if principal is None:
            return None
        seen(request, cast(User, request.user))
        if not principal.owes_two_step or _is_open_without_two_step(request):
            return None
        if request.htmx:  # type: ignore[attr-defined]
            return HttpResponseClientRedirect(reverse("web:two-step"))
        return redirect("web:two-step")

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
