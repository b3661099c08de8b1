"""Cube's refusals, translated. CubeMaster's codes (1304xx) leak through CubeAPI as text of a 500, so they
are read there; the proxy has codes of its own (3104xx)."""

from __future__ import annotations

import re

from sandboxes.errors import (
    Capacity,
    Conflict,
    InvalidRequest,
    NotFound,
    SandboxError,
    TimedOut,
    Unavailable,
    Unsupported,
)
from sandboxes.wire import failures
from sandboxes.wire.failures import Service
from sandboxes.wire.transport import Answer

__all__ = ["LOST_CODES", "refusal"]

LOST_CODES = frozenset({310410, 310507})
"""The proxy's words for a sandbox that was killed, or of which it has no metadata."""

_MASTER_CODE = re.compile(r"\b(130[45]\d\d)\b")
_BY_MASTER_CODE: dict[int, type[SandboxError]] = {
    130400: InvalidRequest,
    130404: NotFound,
    130409: Conflict,
    130490: Conflict,  # in another state, perhaps for a moment only
    130589: Unavailable,  # a resume failed before the delete
    130595: TimedOut,
}
_IN_USE = ("paused sandbox", "sandboxes using", "using it", "runtime ref")
_NO_ROOM = ("paused_resource_release_ratio", "no more resource", "insufficient")
_OTHER_STATE = ("not in normal state", "not running", "operation in progress")
_OUTDATED = re.compile(
    r"\bstale\b|needs? redo|(agent|component|guest[- ]image)s?\b.{0,60}(version|mismatch|incompatib)",
    re.IGNORECASE,
)
"""After an upgrade of the cluster: what was made before it starts on none of its nodes."""
_FILES_ONLY = "snapshot_filesystem_only_rootfs_unsupported"
_FROM_AN_IMAGE = {"create", "connect", "create snapshot"}
_TEXT_REFUSALS = {400, 413, 415, 422}


def refusal(service: Service, op: str, answer: Answer, about: str) -> SandboxError:
    """The error behind an answer of CubeAPI that is no success."""
    error = failures.protocol_error(answer.body)
    text = error["message"] if error else answer.body[:500].decode(errors="replace")
    if error is not None and op in _FROM_AN_IMAGE and _OUTDATED.search(text):
        return _outdated(service, op, answer, about, text)
    kind = _kind(op, answer.status, text, known=error is not None)
    usual = failures.from_answer(
        service, op, answer.status, answer.headers, answer.body, about=about
    )
    if kind is None:
        return usual
    if kind is NotFound and op == "create":
        kind = InvalidRequest
    return failures.make(
        kind,
        service,
        op,
        about=about,
        status=answer.status,
        retry_after_s=usual.retry_after_s,
        detail=f"HTTP {answer.status}: {text}",
    )


def _outdated(service: Service, op: str, answer: Answer, about: str, text: str) -> InvalidRequest:
    """Trying again would not help, though it is told as a conflict."""
    return InvalidRequest(
        f"{about or 'The template'} was made with older components than {service.place} has now, so nothing "
        "starts from it; rebuild the template on the backend's page, then the releases that stand on it.",
        provider=service.provider,
        op=op,
        status=answer.status,
        detail=f"HTTP {answer.status}: {text}",
    )


def _kind(op: str, status: int, text: str, *, known: bool) -> type[SandboxError] | None:
    """What the text says beyond the status; None where the status says it all."""
    lowered = text.lower()
    if status == 408:
        return TimedOut  # with an empty body: the operation may go on there
    if status == 501 or _FILES_ONLY in lowered:
        return Unsupported
    if status in _TEXT_REFUSALS and not known and text and not text.lstrip().startswith("<"):
        return InvalidRequest  # the web framework's own refusal, as plain text
    if status == 409 and any(words in lowered for words in _NO_ROOM):
        return Capacity
    if op.startswith("delete") and known and any(words in lowered for words in _IN_USE):
        return Conflict
    if status == 503 and "130490" in lowered:
        return Conflict
    if status < 500 or not known:
        return None
    if code := _MASTER_CODE.search(text):
        return _BY_MASTER_CODE.get(int(code[1]))
    if any(words in lowered for words in _OTHER_STATE):
        return Conflict
    return None
