"""What the E2B cloud does and one machine does not: refused by name, so nobody waits for it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sandboxes.wire.server.problems import json_error

__all__ = ["unsupported_routes"]

_ALL = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_FORK = "Forking a running sandbox is not supported; take a snapshot and create from it"
_BUILD = "Template builds are not supported here; import a root file system on the host"
_TAGS = "Template tags are not supported; a name means its newest image"
_VOLUMES = "Volumes are not supported"
_SECRETS = "Secrets are not supported"
_LOGS = "Sandbox logs are not kept; read a process's output from its stream"


def unsupported_routes() -> list[Route]:
    return [
        _refused("/sandboxes/{id}/fork", ["POST"], _FORK),
        _refused("/sandboxes/{id}/logs", ["GET"], _LOGS),
        _refused("/v2/sandboxes/{id}/logs", ["GET"], _LOGS),
        _refused("/templates", ["POST"], _BUILD),
        _refused("/v2/templates", ["POST"], _BUILD),
        _refused("/v3/templates", ["POST"], _BUILD),
        _refused("/templates/tags", ["POST"], _TAGS),
        _refused("/templates/{id}/tags", ["GET"], _TAGS),
        _refused("/templates/{id}/files/{hash}", ["GET"], _BUILD),
        _refused("/templates/{id}/builds/{build:path}", ["GET", "POST"], _BUILD),
        _refused("/v2/templates/{id}/builds/{build:path}", ["GET", "POST"], _BUILD),
        _refused("/templates/{id}", ["POST", "PATCH"], _BUILD),
        _refused("/v2/templates/{id}", ["PATCH"], _BUILD),
        _refused("/volumes", _ALL, _VOLUMES),
        _refused("/volumes/{rest:path}", _ALL, _VOLUMES),
        _refused("/volumecontent/{rest:path}", _ALL, _VOLUMES),
        _refused("/secrets", _ALL, _SECRETS),
        _refused("/secrets/{rest:path}", _ALL, _SECRETS),
    ]


def _refused(path: str, methods: list[str], message: str) -> Route:
    async def refuse(request: Request) -> Response:
        return json_error(501, message, {"Should-Retry": "false"})

    return Route(path, refuse, methods=methods)
