"""What went wrong, translated once: transport faults, HTTP statuses and Connect errors become
`sandboxes.errors`.

Only an answer in the protocol's own words can mean "gone": its error body is JSON with `code` and
`message`. A proxy that answers 404 for everything, an HTML page or a cut connection prove nothing
about a sandbox, so they become Unavailable and cost no session its binding.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from sandboxes.errors import (
    Authentication,
    Capacity,
    Conflict,
    Internal,
    InvalidRequest,
    NotFound,
    SandboxError,
    Terminal,
    TimedOut,
    Unavailable,
    Unsupported,
    error_for_status,
)
from sandboxes.wire.connect import Code, ConnectError

__all__ = [
    "Service",
    "from_answer",
    "from_connect",
    "from_transport",
    "make",
    "not_the_protocol",
    "protocol_error",
    "timed_out",
]

_DETAIL_LIMIT = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Who is at the other end, as errors name it.

    `provider` is the registry's name, `place` the words for it in a sentence ("the server at
    https://…"), and `mend` what to do if nothing answers there. `own_sentences` says that the server's messages are
    written for our users, so they are passed on; any other server's text goes to the log only.
    """

    provider: str
    place: str
    mend: str
    own_sentences: bool = False


def make(
    kind: type[SandboxError],
    service: Service,
    op: str,
    *,
    about: str = "",
    status: int | None = None,
    retry_after_s: float | None = None,
    detail: str = "",
    message: str = "",
) -> SandboxError:
    """An error of this kind with its sentence. `about` names the thing: a sandbox, path or template."""
    own = message.strip() if service.own_sentences else ""
    text = f"{own.removesuffix('.')}." if own else _capitalised(_sentence(kind, service, op, about))
    return kind(
        text,
        provider=service.provider,
        op=op,
        status=status,
        retry_after_s=retry_after_s,
        detail=(detail or message)[:_DETAIL_LIMIT],
    )


def _sentence(kind: type[SandboxError], service: Service, op: str, about: str) -> str:
    thing = about or "it"
    if kind is NotFound:
        return f"There is no {about or 'such thing'} at {service.place} (any more); refresh the list and choose again."
    if kind is Terminal:
        return f"The {about or 'sandbox'} has ended for good; start a new one."
    if kind is Authentication:
        return f"{service.place} refused our credentials; enter a valid API key in the backend's settings."
    if kind is InvalidRequest and op == "create":
        return f"{service.place} cannot make a sandbox from {thing}; check that the template exists and its values are valid."
    if kind is InvalidRequest:
        return f"{service.place} refused {op} of {thing} as invalid; check the values (its own words are in the log)."
    if kind is Conflict:
        return f"The {about or 'sandbox'} is busy or in another state; try again in a moment."
    if kind is Capacity:
        return f"{service.place} has no room left or had too many requests; try again later or raise its limits."
    if kind is TimedOut:
        return f"{service.place} did not answer in time, so the outcome of {op} is unknown; look before trying again."
    if kind is Unsupported:
        return f"{service.place} cannot do {op}; use a backend that can."
    if kind is Unavailable:
        return f"{service.place} could not be reached or is down; {service.mend}."
    return f"{service.place} answered {op} in a way that this version does not understand; the log has the details."


def _capitalised(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def timed_out(service: Service, op: str) -> SandboxError:
    return make(TimedOut, service, op, detail="no whole answer within our own limit")


def from_transport(service: Service, op: str, error: Exception) -> SandboxError:
    """A request that got no whole answer. Unavailable if it cannot have been carried out or the
    connection broke, TimedOut if it was sent and nothing came back."""
    detail = f"{type(error).__name__}: {error}"
    if _tls_failure(error):
        text = f"The certificate of {service.place} is not trusted; add its CA in the backend's settings or mend the certificate."
        return Unavailable(text, provider=service.provider, op=op, detail=detail)
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol):
        text = f"The address of {service.place} is not usable; give one that starts with https:// or http://."
        return InvalidRequest(text, provider=service.provider, op=op, detail=detail)
    if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout):
        return make(TimedOut, service, op, detail=detail)
    if isinstance(error, httpx.TransportError):
        return make(Unavailable, service, op, detail=detail)
    return make(Internal, service, op, detail=detail)


def _tls_failure(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False


def protocol_error(body: bytes) -> dict[str, Any] | None:
    """The error body if it is the protocol's own: JSON with `code` and `message`."""
    try:
        error = json.loads(body)
    except ValueError:
        return None
    if isinstance(error, dict) and "code" in error and isinstance(error.get("message"), str):
        return error
    return None


def from_answer(
    service: Service,
    op: str,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    about: str = "",
) -> SandboxError:
    """A refusal over plain HTTP, of either plane."""
    error = protocol_error(body)
    kind = error_for_status(status, op=op)
    if error is None and (kind.gone or kind in (InvalidRequest, Internal)):
        return not_the_protocol(service, op, status, body)
    return make(
        kind,
        service,
        op,
        about=about,
        status=status,
        retry_after_s=_retry_after(headers),
        message=error["message"] if error else "",
        detail=body[:_DETAIL_LIMIT].decode(errors="replace"),
    )


def not_the_protocol(service: Service, op: str, status: int, body: bytes) -> SandboxError:
    """Something answered, but no server that speaks the protocol: a proxy, a login page, a typo."""
    return Unavailable(
        f"What answered for {service.place} is no sandbox service; "
        "check the address and any proxy in front of it.",
        provider=service.provider,
        op=op,
        status=status,
        detail=f"HTTP {status}: {body[:_DETAIL_LIMIT].decode(errors='replace')}",
    )


def _retry_after(headers: Mapping[str, str]) -> float | None:
    value = headers.get("retry-after", "")
    return float(value) if value.isascii() and value.isdigit() else None


_BY_CODE: dict[Code, type[SandboxError]] = {
    Code.INVALID_ARGUMENT: InvalidRequest,
    Code.OUT_OF_RANGE: InvalidRequest,
    Code.PERMISSION_DENIED: InvalidRequest,  # of a file in the sandbox, not of our account
    Code.NOT_FOUND: NotFound,
    Code.ALREADY_EXISTS: Conflict,
    Code.ABORTED: Conflict,
    Code.FAILED_PRECONDITION: Conflict,
    Code.RESOURCE_EXHAUSTED: Capacity,
    Code.UNAUTHENTICATED: Authentication,
    Code.UNIMPLEMENTED: Unsupported,
    Code.UNAVAILABLE: Unavailable,
    Code.DEADLINE_EXCEEDED: TimedOut,
    Code.CANCELED: TimedOut,
}


def from_connect(
    service: Service, op: str, error: ConnectError, *, about: str = ""
) -> SandboxError:
    """A refusal inside the Connect protocol, which only envd itself or its like can give."""
    kind = _BY_CODE.get(error.code, Internal)
    # envd looks the user up while it authenticates, and reports an unknown one as that.
    if kind is Authentication and names_the_user(error.message):
        kind = InvalidRequest
    return make(
        kind,
        service,
        op,
        about=about,
        message=error.message,
        detail=f"{error.code}: {error.message}",
    )


def names_the_user(message: str) -> bool:
    """True if a 401 of the data plane is about the account inside the sandbox, not about a token."""
    text = message.lower()
    return "user" in text and "token" not in text
