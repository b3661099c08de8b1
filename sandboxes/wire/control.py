"""The control plane of the E2B protocol: sandboxes, snapshots and templates over REST.

Which routes the server has is a parameter. Successes are told by any 2xx status, failures by `failures`.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from sandboxes.errors import Authentication, Capacity, Unavailable
from sandboxes.types import (
    CreateRequest,
    Sandbox,
    SandboxInfo,
    SandboxState,
    SnapshotInfo,
    TemplateBuild,
    TemplateInfo,
    TemplateStatus,
)
from sandboxes.wire import failures
from sandboxes.wire.bodies import Routes, new_sandbox
from sandboxes.wire.encoding import encode_metadata_filter
from sandboxes.wire.messages import DEFAULT_TIMEOUT_V1_S, ENGINE_PATH, NetworkConfig
from sandboxes.wire.rest import REQUEST_TIMEOUT_S, SNAPSHOT_TIMEOUT_S, RestPlane
from sandboxes.wire.transport import Plane

__all__ = ["ControlPlane"]

PAUSE_TIMEOUT_S = 130.0
_PAGE_SIZE = 100
_RESUMED = 201
"""Connect answers with it if it woke the sandbox, and 200 if that ran already."""

_STATES = {
    "running": SandboxState.RUNNING,
    "paused": SandboxState.PAUSED,
    "pausing": SandboxState.TRANSITIONING,
    "resuming": SandboxState.TRANSITIONING,
    "snapshotting": SandboxState.TRANSITIONING,
    "terminated": SandboxState.TERMINAL,
    "killed": SandboxState.TERMINAL,
}
_TEMPLATE_STATES = {"ready": TemplateStatus.READY, "error": TemplateStatus.FAILED}


class ControlPlane(RestPlane):
    """One provider account. Safe for concurrent use; closed by whoever made the plane."""

    def __init__(
        self,
        plane: Plane,
        *,
        routes: Routes = "v2",
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        super().__init__(plane, request_timeout_s=request_timeout_s)
        self.routes: Routes = routes

    # Sandboxes

    async def create(self, request: CreateRequest) -> Sandbox:
        path = "/v2/sandboxes" if self.routes == "v2" else "/sandboxes"
        body = new_sandbox(request, routes=self.routes)
        reply = await self._json("create", "POST", path, body, about=f"“{request.template}”")
        return self._sandbox("create", reply, metadata=dict(request.metadata))

    async def connect(
        self, sandbox_id: str, *, traffic_token: str | None, timeout_s: float | None
    ) -> Sandbox:
        prefix = "/v2" if self.routes == "v2" else ""
        body: dict[str, Any] = {}
        if timeout_s is not None:
            body["timeout"] = math.ceil(timeout_s)
        elif self.routes == "v1":
            body["timeout"] = DEFAULT_TIMEOUT_V1_S  # required there; connecting never shortens
        answer = await self._send(
            "connect",
            "POST",
            f"{prefix}{self._path('connect', sandbox_id)}/connect",
            body,
            about=_named(sandbox_id),
            timeout_s=PAUSE_TIMEOUT_S,
        )
        reply = self._parse("connect", answer.body)
        sandbox = self._sandbox("connect", reply, traffic_token=traffic_token)
        return replace(sandbox, resumed=answer.status == _RESUMED)

    async def get(self, sandbox_id: str, *, op: str = "get") -> SandboxInfo:
        return self._info(op, await self.detail(sandbox_id, op=op))

    async def detail(self, sandbox_id: str, *, op: str = "get") -> Mapping[str, Any]:
        """All that the server tells of one sandbox, as it tells it."""
        path = self._path(op, sandbox_id)
        return self.object(op, await self._json(op, "GET", path, about=_named(sandbox_id)))

    async def list_sandboxes(
        self, *, metadata: Mapping[str, str], states: Collection[SandboxState]
    ) -> AsyncIterator[SandboxInfo]:
        """Filtered by the server and again here: some compatibles ignore a filter."""
        params = {"limit": str(_PAGE_SIZE)}
        if metadata:
            params["metadata"] = encode_metadata_filter(metadata)
        asked = {SandboxState.RUNNING, SandboxState.PAUSED}
        if states and asked.issuperset(states):
            params["state"] = ",".join(sorted(states))
        async for item in self._pages("list", "/v2/sandboxes", params, key="sandboxID"):
            info = self._info("list", item)
            if states and info.state not in states:
                continue
            if all(info.metadata.get(name) == value for name, value in metadata.items()):
                yield info

    async def delete(self, sandbox_id: str) -> None:
        path = self._path("delete", sandbox_id)
        await self._send("delete", "DELETE", path, about=_named(sandbox_id))

    async def pause(self, sandbox_id: str) -> None:
        """Conflict if it is paused already."""
        await self._send(
            "pause",
            "POST",
            f"{self._path('pause', sandbox_id)}/pause",
            {},
            about=_named(sandbox_id),
            timeout_s=PAUSE_TIMEOUT_S,
        )

    async def set_network(self, sandbox_id: str, body: NetworkConfig) -> None:
        path = f"{self._path('update network', sandbox_id)}/network"
        await self._send("update network", "PUT", path, body, about=_named(sandbox_id))

    async def probe(self) -> None:
        """Return if the server answers this protocol and takes our key."""
        reply = await self._json("health", "GET", "/v2/sandboxes", params={"limit": "1"})
        self._array("health", reply)

    async def has_v2_routes(self) -> bool:
        """Whether create and connect exist under /v2: an empty create is refused there as invalid,
        and without the route as not found or not allowed. Creates nothing."""
        answer = await self._plane.request(
            "open", "POST", "/v2/sandboxes", json={}, timeout_s=self._timeout_s
        )
        if answer.status in (404, 405):
            return False
        service = self._plane.service
        if answer.ok:
            raise failures.not_the_protocol(service, "open", answer.status, answer.body)
        error = failures.from_answer(service, "open", answer.status, answer.headers, answer.body)
        if isinstance(error, Authentication | Capacity | Unavailable):
            raise error
        return True

    async def engine(self) -> Mapping[str, Any]:
        """What sandboxd says of its engine; other servers have no such route."""
        return self.object("open", await self._json("open", "GET", ENGINE_PATH))

    # Snapshots

    async def create_snapshot(self, sandbox_id: str, *, name: str) -> SnapshotInfo:
        reply = await self._json(
            "create snapshot",
            "POST",
            f"{self._path('create snapshot', sandbox_id)}/snapshots",
            {"name": name},
            about=_named(sandbox_id),
            timeout_s=SNAPSHOT_TIMEOUT_S,
        )
        return self._snapshot("create snapshot", reply, source=sandbox_id)

    async def list_snapshots(self, *, sandbox_id: str | None) -> AsyncIterator[SnapshotInfo]:
        params = {"limit": str(_PAGE_SIZE)}
        if sandbox_id is not None:
            params["sandboxID"] = sandbox_id
        async for item in self._pages("list snapshots", "/snapshots", params, key="snapshotID"):
            snapshot = self._snapshot("list snapshots", item, source=sandbox_id)
            if sandbox_id in (None, snapshot.source_sandbox_id):
                yield snapshot

    async def delete_template(self, template_id: str, *, op: str) -> None:
        """Templates and snapshots are deleted alike. The id is one path segment, slashes quoted."""
        await self._send(
            op,
            "DELETE",
            f"/templates/{quote(template_id, safe='')}",
            about=f"“{template_id}”",
            timeout_s=SNAPSHOT_TIMEOUT_S,
        )

    # Templates

    async def list_templates(self) -> AsyncIterator[TemplateInfo]:
        reply = await self._json("list templates", "GET", "/templates")
        for item in self._array("list templates", reply):
            yield self._template("list templates", item)

    async def alias(self, name: str) -> str | None:
        """The id of the template of that name, "" for one of another account that may be started from; None
        if there is none, or the server has no such route."""
        answer = await self._plane.request(
            "get template",
            "GET",
            f"/templates/aliases/{quote(name, safe='')}",
            timeout_s=self._timeout_s,
        )
        if answer.status == 403:
            return ""
        if not answer.ok:
            return None
        return str(
            self.object("get template", self._parse("get template", answer.body))["templateID"]
        )

    async def ensure_template(self, name: str, *, rebuild: bool) -> TemplateBuild:
        """A route of sandboxd."""
        op = "ensure template"
        reply = await self._json(op, "POST", _build_path(name), {"rebuild": rebuild}, about=name)
        return self._template_build(op, reply)

    async def template_build(self, name: str) -> TemplateBuild:
        """A route of sandboxd."""
        op = "template build"
        about = f"template “{name}”"
        return self._template_build(op, await self._json(op, "GET", _build_path(name), about=about))

    # Answers

    def _sandbox(
        self,
        op: str,
        reply: Any,
        *,
        metadata: Mapping[str, str] | None = None,
        traffic_token: str | None = None,
    ) -> Sandbox:
        item = self.object(op, reply)
        return Sandbox(
            id=self._required(op, item, "sandboxID"),
            template_id=self._required(op, item, "templateID"),
            metadata=metadata,
            access_token=item.get("envdAccessToken") or None,
            traffic_token=item.get("trafficAccessToken") or traffic_token,
            domain=item.get("domain") or None,
        )

    def _info(self, op: str, reply: Any) -> SandboxInfo:
        item = self.object(op, reply)
        raw_state = str(item.get("state") or "")
        return SandboxInfo(
            id=self._required(op, item, "sandboxID"),
            template_id=str(item.get("templateID") or ""),
            state=_STATES.get(raw_state.lower(), SandboxState.UNKNOWN),
            raw_state=raw_state,
            metadata=dict(item.get("metadata") or {}),
            started_at=_time(item.get("startedAt")),
            end_at=_time(item.get("endAt")),
        )

    def _snapshot(self, op: str, reply: Any, *, source: str | None) -> SnapshotInfo:
        item = self.object(op, reply)
        origin = item.get("sandboxID") or item.get("originSandboxID") or source
        return SnapshotInfo(
            id=self._required(op, item, "snapshotID"),
            names=tuple(item.get("names") or ()),
            source_sandbox_id=origin,
            created_at=_time(item.get("createdAt")),
            size_bytes=item.get("sizeBytes"),
        )

    def _template_build(self, op: str, reply: Any) -> TemplateBuild:
        item = self.object(op, reply)
        status = str(item.get("status") or "").lower()
        return TemplateBuild(
            name=self._required(op, item, "name"),
            status=_TEMPLATE_STATES.get(status, TemplateStatus.BUILDING),
            step=str(item.get("step") or ""),
            fraction=item.get("fraction"),
            error=str(item.get("error") or ""),
            template_id=str(item.get("templateID") or ""),
        )

    def _template(self, op: str, reply: Any) -> TemplateInfo:
        item = self.object(op, reply)
        status = str(item.get("buildStatus") or "ready").lower()
        return TemplateInfo(
            id=self._required(op, item, "templateID"),
            names=tuple(item.get("names") or item.get("aliases") or ()),
            status=_TEMPLATE_STATES.get(status, TemplateStatus.BUILDING),
            created_at=_time(item.get("createdAt")),
            size_bytes=item.get("sizeBytes"),
        )


def _build_path(name: str) -> str:
    return f"/sandboxd/templates/{quote(name, safe='')}/build"


def _named(sandbox_id: str) -> str:
    return f"sandbox {sandbox_id}"


def _time(value: object) -> datetime | None:
    """RFC 3339, nanoseconds and all (cut to microseconds); None if absent or unreadable."""
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
