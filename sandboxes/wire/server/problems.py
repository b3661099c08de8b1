"""Errors as the protocol's JSON: always `{code, message}`, the message one sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeVar

from starlette.responses import JSONResponse

from sandboxes.errors import (
    Authentication,
    Capacity,
    Conflict,
    InvalidRequest,
    NotFound,
    SandboxError,
    Terminal,
    TimedOut,
    Unavailable,
    Unsupported,
)
from sandboxes.wire.connect import Code, ConnectError
from sandboxes.wire.messages import NOT_FOUND_TEXT, PORT_CLOSED_TEXT

__all__ = [
    "connect_error",
    "error_response",
    "json_error",
    "not_found_502",
    "port_closed_502",
]

T = TypeVar("T")

_STATUS: dict[type[SandboxError], int] = {
    NotFound: 404,
    Terminal: 404,
    Authentication: 401,
    InvalidRequest: 400,
    Unsupported: 501,
    Conflict: 409,
    Capacity: 429,
    TimedOut: 504,
    Unavailable: 503,
}
_RETRY_AFTER_S = 1.0

_CODE: dict[type[SandboxError], Code] = {
    NotFound: Code.NOT_FOUND,
    Terminal: Code.NOT_FOUND,
    Authentication: Code.UNAUTHENTICATED,
    InvalidRequest: Code.INVALID_ARGUMENT,
    Unsupported: Code.UNIMPLEMENTED,
    Conflict: Code.ABORTED,
    Capacity: Code.RESOURCE_EXHAUSTED,
    TimedOut: Code.DEADLINE_EXCEEDED,
    Unavailable: Code.UNAVAILABLE,
}


def json_error(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    body = {"code": status, "message": message}
    return JSONResponse(body, status_code=status, headers=dict(headers or {}))


def error_response(
    error: SandboxError, *, disk: bool = False, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """`disk` says that Capacity here means a full disk: 507, not a quota's 429."""
    status = _lookup(_STATUS, error, 500)
    if isinstance(error, Capacity):
        status = 507 if disk or error.status == 507 else 429
    elif isinstance(error, InvalidRequest) and error.status == 404:
        status = 404
    extra = dict(headers or {})
    if status in (429, 503):
        extra["Retry-After"] = str(math.ceil(error.retry_after_s or _RETRY_AFTER_S))
    return json_error(status, error.message, extra)


def connect_error(error: SandboxError, *, conflict: Code = Code.ABORTED) -> ConnectError:
    if isinstance(error, Conflict):
        return ConnectError(conflict, error.message)
    return ConnectError(_lookup(_CODE, error, Code.INTERNAL), error.message)


def not_found_502(sandbox_id: str) -> JSONResponse:
    """What SDKs take as "not running": a sandbox that is gone, or paused and not to be woken."""
    return JSONResponse(
        {"sandboxId": sandbox_id, "message": NOT_FOUND_TEXT, "code": 502}, status_code=502
    )


def port_closed_502(sandbox_id: str, port: int) -> JSONResponse:
    return JSONResponse(
        {"sandboxId": sandbox_id, "message": PORT_CLOSED_TEXT, "port": port, "code": 502},
        status_code=502,
    )


def _lookup(table: Mapping[type[SandboxError], T], error: SandboxError, default: T) -> T:
    return next((value for kind, value in table.items() if isinstance(error, kind)), default)
