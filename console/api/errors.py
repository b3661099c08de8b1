"""Every refusal of the API, in one envelope:

    {"success": false, "error": {"code": 1003, "kind": "not_found", "message": "…", "details": …}}

`kind` is stable and says what a client may do about it; `code` is WeKnora's integer for the same.
Only `not_found` and `terminal` ever mean that a sandbox is gone.
"""

from __future__ import annotations

import logging
from typing import Any

from django.core.exceptions import (
    PermissionDenied,
    RequestDataTooBig,
    SuspiciousOperation,
    ValidationError,
)
from django.db import Error as DatabaseError
from django.http import Http404, HttpRequest, JsonResponse
from kombu.exceptions import OperationalError as BrokerError
from rest_framework import exceptions

from console.fleet.backends import BackendInUse, InventoryUnverifiable, SandboxesStillLive
from console.fleet.removal import RemovalUnconfirmed
from sandboxes.errors import SandboxError
from sandboxes.network import PolicyInvalid
from skills.package import PackageRefused
from skills.plan import PlanRefused

__all__ = ["KINDS", "ApiError", "as_api_error", "refusal"]

log = logging.getLogger(__name__)

KINDS: dict[str, tuple[int, int]] = {
    "invalid_request": (400, 1000),
    "unauthenticated": (401, 1001),
    "forbidden": (403, 1002),
    "not_found": (404, 1003),
    "method_not_allowed": (405, 1004),
    "not_acceptable": (406, 1000),
    "conflict": (409, 1005),
    "terminal": (410, 1003),
    "precondition_failed": (412, 1005),
    "too_large": (413, 1000),
    "unsupported_media_type": (415, 1000),
    "validation": (422, 1010),
    "unsupported": (422, 1000),
    "precondition_required": (428, 1000),
    "too_many_requests": (429, 1006),
    "internal": (500, 1007),
    "authentication": (502, 1008),
    "capacity": (503, 1008),
    "unavailable": (503, 1008),
    "timeout": (504, 1009),
}
"""Kind to HTTP status and integer code. `authentication` is the provider refusing the backend's
credentials; a caller without a key is `unauthenticated`."""

_RETRY_AFTER_S = 2.0
_BY_STATUS = {
    400: "invalid_request",
    401: "unauthenticated",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    415: "unsupported_media_type",
    429: "too_many_requests",
}


class ApiError(Exception):
    """`message` is one sentence with the mend; `details` is JSON-ready."""

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        details: Any = None,
        retry_after_s: float | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.status, self.code = KINDS[kind]
        self.message = message
        self.details = details
        self.headers = dict(headers or {})
        if retry_after_s is not None:
            self.headers["Retry-After"] = str(max(1, round(retry_after_s)))

    def body(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "kind": self.kind,
            "message": self.message,
            "details": self.details,
        }


def as_api_error(error: Exception, request: HttpRequest) -> ApiError:
    """What the client is told of any exception. One that nobody expected is logged and says no more
    than where to look for it."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, SandboxError):
        return _of_sandbox(error)
    if isinstance(error, PackageRefused | PlanRefused):
        return _of_refusal(error)
    if isinstance(error, Http404):
        return ApiError("not_found", "There is no such thing here, or you may not see it.")
    if isinstance(error, PermissionDenied):
        return ApiError("forbidden", str(error) or "You may not do this here.")
    if isinstance(error, exceptions.APIException):
        return _of_rest_framework(error)
    if isinstance(error, ValidationError):
        return _invalid(error.message_dict if hasattr(error, "error_dict") else error.messages)
    if isinstance(error, RequestDataTooBig):
        return ApiError("too_large", "The request is too large; send less at once.")
    if isinstance(error, SuspiciousOperation):
        return ApiError("invalid_request", "The request can't be read; check how it is encoded.")
    if isinstance(error, DatabaseError):
        log.error("%s %s: the database failed", request.method, request.path, exc_info=error)
        return ApiError(
            "unavailable",
            "The database does not answer; try again in a few seconds.",
            retry_after_s=_RETRY_AFTER_S,
        )
    if isinstance(error, BrokerError):
        log.error("%s %s: the task queue failed", request.method, request.path, exc_info=error)
        return ApiError(
            "unavailable",
            "The task queue (Redis) does not answer; what was asked for starts when it does.",
            retry_after_s=_RETRY_AFTER_S,
        )
    request_id = getattr(request, "request_id", "")
    log.error("%s %s failed (%s)", request.method, request.path, request_id, exc_info=error)
    return ApiError(
        "internal",
        f"This is a fault of the console; its log names it under request {request_id or '-'}.",
    )


def refusal(error: ApiError) -> JsonResponse:
    return JsonResponse(
        {"success": False, "error": error.body()},
        status=error.status,
        headers=error.headers,
        json_dumps_params={"ensure_ascii": False},
    )


def _of_sandbox(error: SandboxError) -> ApiError:
    if isinstance(error, PolicyInvalid):
        entries = [
            {"list": e.list, "index": e.index, "entry": e.entry, "message": e.message}
            for e in error.errors
        ]
        return ApiError("validation", error.message, details={"entries": entries})
    kind = error.kind if error.kind in KINDS else "internal"
    retry = error.retry_after_s
    if retry is None and KINDS[kind][0] == 503:
        retry = _RETRY_AFTER_S
    if kind == "internal":
        log.error("%s: %s (%s)", error.op, error.message, error.detail)
    return ApiError(kind, error.message, details=_details(error), retry_after_s=retry)


def _details(error: SandboxError) -> dict[str, Any] | None:
    """What a program needs to know of a refusal, besides its sentence."""
    if isinstance(error, SandboxesStillLive):
        unknown = isinstance(error, InventoryUnverifiable)
        return {"inventory": error.inventory.to_json(), "may_force": unknown}
    if isinstance(error, BackendInUse):
        return {"names": error.names}
    if isinstance(error, RemovalUnconfirmed):
        return {"consequences": error.consequences.to_json()}
    return None


def _of_refusal(error: PackageRefused | PlanRefused) -> ApiError:
    told = error.to_json()
    details = {key: told[key] for key in ("problems", "candidates") if key in told}
    return ApiError("validation", str(error), details=details)


def _of_rest_framework(error: exceptions.APIException) -> ApiError:
    if isinstance(error, exceptions.ValidationError):
        return _invalid(error.detail)
    kind = _BY_STATUS.get(error.status_code, "internal")
    return ApiError(kind, str(error.detail))


def _invalid(fields: Any) -> ApiError:
    first = fields
    where: list[str] = []
    while isinstance(first, dict | list) and first:
        if isinstance(first, dict):
            name, first = next(iter(first.items()))
            if name not in ("non_field_errors", "__all__"):
                where.append(str(name))
        else:
            first = next((item for item in first if item), first[0])
    place = ".".join(where)
    message = f"{place}: {first}" if place else str(first)
    return ApiError("validation", message, details={"fields": fields})
