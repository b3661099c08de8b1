"""Which requests to a sandbox's ports are let in: by its own token, a signature, or the traffic token."""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from sandboxes.wire.messages import ACCESS_TOKEN_HEADER, TRAFFIC_TOKEN_HEADER
from sandboxes.wire.server.problems import json_error
from sandboxes.wire.server.signatures import signature_problem

__all__ = ["access_refusal", "traffic_refusal"]

_UNAUTHORIZED = (
    "unauthorized access, please provide a valid access token or method signing if supported"
)


def access_refusal(token: str, scope: Scope, *, health_is_open: bool) -> Response | None:
    """The answer to a request to envd without the right token or signature; None lets it in."""
    if _given(scope, ACCESS_TOKEN_HEADER, token):
        return None
    if scope["path"] == "/files":
        problem = signature_problem(token, scope)
        return json_error(401, problem) if problem else None
    if health_is_open and scope["path"] == "/health" and scope["method"] == "GET":
        return None
    return json_error(401, _UNAUTHORIZED)


def traffic_refusal(sandbox_id: str, token: str | None, scope: Scope) -> Response | None:
    """403 without the traffic token of a sandbox whose inbound is closed."""
    if token and _given(scope, TRAFFIC_TOKEN_HEADER, token):
        return None
    problem = f"Token header '{TRAFFIC_TOKEN_HEADER}' is missing"
    if TRAFFIC_TOKEN_HEADER in Headers(scope=scope):
        problem = f"Provided token in '{TRAFFIC_TOKEN_HEADER}' header is invalid"
    message = f"Sandbox is secured with traffic access token. {problem}"
    body = {"sandboxId": sandbox_id, "message": message, "code": 403}
    return JSONResponse(body, status_code=403)


def _given(scope: Scope, name: str, token: str) -> bool:
    given = Headers(scope=scope).get(name, "")
    return hmac.compare_digest(given.encode(), token.encode())
