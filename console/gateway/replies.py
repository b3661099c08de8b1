"""The backend's answers as a client of one space sees them, and refusals as the protocol has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.conf import settings
from starlette.responses import JSONResponse

from console.gateway.caller import TooManyGuesses
from console.gateway.images import release_name
from console.gateway.narrowing import Forbidden
from console.gateway.tags import TAG_TEMPLATE, visible
from sandboxes.errors import Authentication, SandboxError, Unavailable
from sandboxes.sessions import TAG_RELEASE
from sandboxes.wire.server.problems import error_response, json_error
from skills.models import Release

__all__ = ["NO_RETRY", "handle", "listed", "refusal"]

NO_RETRY = {"Should-Retry": "false"}


def handle(answer: Mapping[str, Any], metadata: Mapping[str, str]) -> dict[str, Any]:
    """The body of create, connect and resume."""
    reply = {**answer, "domain": settings.SKILLYARD_GATEWAY_DOMAIN or None}
    # A detail, from which a repeated create is answered, says more than a create does.
    for name in ("metadata", "network", "lifecycle", "state", "startedAt", "endAt"):
        reply.pop(name, None)
    return _named(reply, metadata.get(TAG_TEMPLATE))


async def listed(items: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Items of a list, or details. Sandboxes made through another door carry their release's tag only."""
    found = list(items)
    tags = [item.get("metadata") or {} for item in found]
    wanted = {tag[TAG_RELEASE] for tag in tags if tag.get(TAG_RELEASE) and TAG_TEMPLATE not in tag}
    names = {}
    if wanted:
        async for release in Release.objects.filter(pk__in=wanted):
            names[release.pk] = release_name(release)
    return [
        _named(
            {**item, "metadata": visible(tag), **_domain(item)},
            tag.get(TAG_TEMPLATE) or names.get(tag.get(TAG_RELEASE, "")),
        )
        for item, tag in zip(found, tags, strict=True)
    ]


def refusal(error: SandboxError, *, headers: Mapping[str, str] | None = None) -> JSONResponse:
    if isinstance(error, Forbidden):
        return json_error(403, error.message, headers)
    if isinstance(error, Authentication) and error.provider:
        # The console's own credentials, not the caller's key.
        error = Unavailable(error.message, op=error.op)
    if isinstance(error, TooManyGuesses):
        return error_response(error, headers={**NO_RETRY, **(headers or {})})
    if error.status == 501:
        return json_error(501, error.message, {**NO_RETRY, **(headers or {})})
    return error_response(error, headers=headers)


def _named(reply: dict[str, Any], name: str | None) -> dict[str, Any]:
    if name and name != reply.get("templateID"):
        reply["templateID"] = name
        reply.pop("alias", None)
    return reply


def _domain(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"domain": settings.SKILLYARD_GATEWAY_DOMAIN or None} if "domain" in item else {}
