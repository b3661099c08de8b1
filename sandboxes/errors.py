"""Every error that leaves the sandboxes package, in one tree.

    SandboxError
    ├── NotFound        the sandbox, snapshot or file does not exist          gone
    ├── Terminal        the sandbox exists no more and never will again       gone
    ├── Authentication  the provider refused our credentials
    ├── InvalidRequest  the request can never succeed as it stands
    ├── Unsupported     this backend cannot do that at all
    ├── Conflict        the resource is busy or in another state              retryable
    ├── Capacity        quota, rate limit or a full disk                      retryable
    ├── TimedOut        no answer in time; the outcome is unknown             retryable
    ├── Unavailable     the provider could not be reached or is down          retryable
    └── Internal        anything that the adapter did not recognise

`gone` is an allow-list: a session's binding may be replaced only for those two kinds. Every other
kind, known or new, preserves it. A command that overruns is no error: it is an `ExecResult` with
`killed=True`.

Adapters translate at their edge: no provider exception, status code or text passes beyond it.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "Authentication",
    "Capacity",
    "Conflict",
    "Internal",
    "InvalidRequest",
    "NotFound",
    "SandboxError",
    "Terminal",
    "TimedOut",
    "Unavailable",
    "Unsupported",
    "error_for_status",
]


class SandboxError(Exception):
    """Root of the tree. `str(error)` is one sentence a person can act on.

    `op` is the contract's method that failed, `provider` the backend's kind, `status` the HTTP
    status behind it where there was one, `retry_after_s` the provider's own advice, `detail` the
    raw text for the log (never shown to users, never holds a secret).
    """

    kind: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False
    gone: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        provider: str = "",
        op: str = "",
        status: int | None = None,
        retry_after_s: float | None = None,
        detail: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.provider = provider
        self.op = op
        self.status = status
        self.retry_after_s = retry_after_s
        self.detail = detail


class NotFound(SandboxError):
    kind = "not_found"
    gone = True


class Terminal(SandboxError):
    kind = "terminal"
    gone = True


class Authentication(SandboxError):
    kind = "authentication"


class InvalidRequest(SandboxError):
    kind = "invalid_request"


class Unsupported(SandboxError):
    kind = "unsupported"


class Conflict(SandboxError):
    kind = "conflict"
    retryable = True


class Capacity(SandboxError):
    kind = "capacity"
    retryable = True


class TimedOut(SandboxError):
    kind = "timeout"
    retryable = True


class Unavailable(SandboxError):
    kind = "unavailable"
    retryable = True


class Internal(SandboxError):
    kind = "internal"


_BY_STATUS: dict[int, type[SandboxError]] = {
    400: InvalidRequest,
    401: Authentication,
    403: Authentication,
    404: NotFound,
    408: TimedOut,
    409: Conflict,
    410: Terminal,
    422: InvalidRequest,
    429: Capacity,
    501: Unsupported,
    504: TimedOut,
    507: Capacity,
}


def error_for_status(status: int, *, op: str) -> type[SandboxError]:
    """The error class for a provider's HTTP status during the contract method `op`.

    A 404 while creating names a bad template, not a vanished sandbox: it is InvalidRequest, so
    that it can never cost a session its binding.
    """
    if status == 404 and op == "create":
        return InvalidRequest
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return Unavailable if status >= 500 else Internal
