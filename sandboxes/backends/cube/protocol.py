"""E2B's calls, as a Cube cluster can answer them: for a gateway, whose clients know E2B and not Cube.

Whatever Cube does in its own way (waiting, undoing, checking) is done by the client; here its answers get the
shape that E2B's SDKs read, which fail on a field that is missing.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sandboxes.backends.cube.marks import MARK_KEY, Mark
from sandboxes.errors import Conflict, InvalidRequest, NotFound, Unsupported
from sandboxes.types import CreateRequest, OnTimeout, SandboxState, TemplateInfo, TemplateStatus
from sandboxes.wire.client import WireClient
from sandboxes.wire.encoding import decode_metadata_filter
from sandboxes.wire.messages import DEFAULT_TIMEOUT_S
from sandboxes.wire.protocol import WireProtocol
from sandboxes.wire.server.bodies import Fields
from sandboxes.wire.server.newsandbox import parse_egress
from sandboxes.wire.server.pages import MAX_PAGE, Cursor, page

if TYPE_CHECKING:
    from sandboxes.backends.cube.client import CubeClient

__all__ = ["CubeProtocol"]

Reply = tuple[Mapping[str, str], Any]
Answerer = Callable[[str, Any, Mapping[str, str]], Awaitable[Reply]]

_ENVD_VERSION = "0.2.0"
_UNKNOWN_TIME = datetime.fromtimestamp(0, UTC)
_NEVER_ENDS = "9999-12-31T23:59:59Z"
_NOTHING: Reply = ({}, None)
_OF_A_SANDBOX = re.compile(r"/sandboxes/(?P<id>[A-Za-z0-9_-]+)(?P<rest>/[a-z]+)?", re.ASCII)


class CubeProtocol(WireProtocol):
    # Killed, its metadata missing, asleep or on its way, envd not up yet.
    doubtful = frozenset({410, 500, 502, 503, 504})

    def __init__(self, client: CubeClient, wire: WireClient) -> None:
        super().__init__(wire)
        self._client = client
        self._answers: dict[tuple[str, str], Answerer] = {
            ("GET", ""): self._detail,
            ("DELETE", ""): self._delete,
            ("POST", "/pause"): self._pause,
            ("POST", "/resume"): self._resume,
            ("POST", "/timeout"): self._set_timeout,
            ("POST", "/refreshes"): self._refresh,
            ("POST", "/snapshots"): self._snapshot,
            ("PUT", "/network"): self._set_network,
            ("GET", "/metrics"): self._metrics,
        }

    async def create(
        self,
        request: CreateRequest,
        *,
        auto_resume: bool,
        mask_request_host: str | None = None,
        idempotency_key: str | None = None,
    ) -> Mapping[str, Any]:
        """Cube wakes only what is paused when idle, and knows no idempotency key."""
        more: dict[str, Any] = {}
        if request.timeout.on_timeout is OnTimeout.PAUSE:
            more["lifecycle"] = {"autoResume": auto_resume}
        if mask_request_host is not None:
            more["network"] = {"maskRequestHost": mask_request_host}
        _, reply = await self._client.make(request, more)
        return _sandbox(reply)

    async def connect(
        self, sandbox_id: str, *, timeout_s: int | None
    ) -> tuple[bool, Mapping[str, Any]]:
        sandbox = await self._client.connect(sandbox_id, timeout_s=timeout_s)
        detail = await self._client.control.detail(sandbox_id, op="connect")
        return bool(sandbox.resumed), _sandbox(detail)

    async def call(
        self,
        op: str,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        about: str = "",
    ) -> Reply:
        if (method, path) == ("GET", "/v2/sandboxes"):
            return await self._list(params or {})
        if (method, path) == ("GET", "/templates"):
            assert self._client.templates is not None  # noqa: S101 - every Cube has them
            return {}, [_template(info) async for info in self._client.templates.list()]
        match = _OF_A_SANDBOX.fullmatch(path)
        answer = self._answers.get((method, match["rest"] or "")) if match else None
        if match is None or answer is None:
            raise self._unsupported(f"{method} {path} is nothing that Cube has")
        return await answer(match["id"], body, params or {})

    # Sandboxes

    async def _list(self, params: Mapping[str, str]) -> Reply:
        """Filtered, ordered and cut here: Cube does neither as E2B does."""
        items = [_listed(item) for item in await self._client.control.everything()]
        templates = await self._names_of(params.get("template"))
        found = [item for item in items if _matches(item, params, templates)]
        chosen, token = page(
            found,
            key=_started,
            limit=int(params.get("limit", MAX_PAGE)),
            token=params.get("nextToken"),
            ascending=params.get("order") == "asc",
        )
        running = sum(item["state"] == "running" for item in found)
        headers = {"x-total-running": str(running)}
        return ({**headers, "x-next-token": token} if token else headers), list(chosen)

    async def _names_of(self, template: str | None) -> set[str]:
        """An item is told by what it was asked for with: the template's id, or one of its aliases."""
        if template is None:
            return set()
        assert self._client.templates is not None  # noqa: S101 - every Cube has them
        try:
            info = await self._client.templates.get(template)
        except NotFound:
            return {template}  # a snapshot, or nothing
        return {template, info.id, *info.names}

    async def _detail(self, sandbox_id: str, body: Any, params: Mapping[str, str]) -> Reply:
        raw = await self._client.control.detail(sandbox_id)
        detail = {**_listed(raw), "domain": None}
        if mark := Mark.read(raw.get("metadata") or {}):
            detail["network"] = {"allowPublicTraffic": mark.inbound}
        return {}, detail

    async def _delete(self, sandbox_id: str, body: Any, params: Mapping[str, str]) -> Reply:
        await self._client.delete(sandbox_id)
        return _NOTHING

    async def _pause(self, sandbox_id: str, body: Any, params: Mapping[str, str]) -> Reply:
        if await self._is_paused(sandbox_id, op="pause"):
            raise self._conflict("pause", f"Sandbox {sandbox_id} is paused already.")
        await self._client.pause(sandbox_id)
        return _NOTHING

    async def _resume(self, sandbox_id: str, body: Any, params: Mapping[str, str]) -> Reply:
        if not await self._is_paused(sandbox_id, op="resume"):
            raise self._conflict("resume", f"Sandbox {sandbox_id} is running already.")
        _, reply = await self.connect(sandbox_id, timeout_s=_seconds(body, "timeout"))
        return {}, reply

    async def _set_timeout(self, sandbox_id: str, body: Any, params: Mapping[str, str]) -> Reply:
        seconds = _seconds(body, "timeout")
        await self._client.control.set_timeout(sandbox_id, seconds, op="set timeout")
        return _NOTHING

    async def _refresh(self, sandbox_id: str, body: Any, params: Mapping[str, str]) -> Reply:
        """A connect extends as well, and by more than the hour that Cube's own call gives."""
        if await self._is_paused(sandbox_id, op="refresh"):
            raise self._conflict("refresh", f"Sandbox {sandbox_id} is paused; connect to it first.")
        await self._client.connect(sandbox_id, timeout_s=_seconds(body, "duration"))
        return _NOTHING

    async def _snapshot(self, sandbox_id: str, body: Any, params: Mapping[str, str]) -> Reply:
        name = (body or {}).get("name")
        assert self._client.snapshots is not None  # noqa: S101 - every Cube has them
        # A name finds it again if the answer is lost.
        taken = await self._client.snapshots.create(
            sandbox_id, name=name or f"e2b-{uuid.uuid4().hex}"
        )
        return {}, {"snapshotID": taken.id, "names": list(taken.names) if name else []}

    async def _set_network(self, sandbox_id: str, body: Any, params: Mapping[str, str]) -> Reply:
        if self._client.network is None:
            raise self._unsupported(self._client.capabilities.notes["network_update"])
        fields = Fields(body or {})
        outbound = fields.flag("allow_internet_access", default=True)
        policy = parse_egress(fields, outbound=outbound, inbound=False)
        await self._client.set_policy(sandbox_id, policy, inbound_as_it_is=True)
        return _NOTHING

    async def _metrics(self, sandbox_id: str, body: Any, params: Mapping[str, str]) -> Reply:
        raise self._unsupported("This backend keeps no metrics of a sandbox; ask inside of it")

    async def _is_paused(self, sandbox_id: str, *, op: str) -> bool:
        return (await self._client.look(sandbox_id, op=op)).state is SandboxState.PAUSED

    def _conflict(self, op: str, message: str) -> Conflict:
        return Conflict(message, provider=self._client.provider, op=op, status=409)

    def _unsupported(self, message: str) -> Unsupported:
        return Unsupported(message, provider=self._client.provider, status=501)


def _sandbox(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of create, connect and resume. Cube's domain is that of its own proxy."""
    reply = {
        "templateID": raw.get("templateID") or "",
        "sandboxID": raw["sandboxID"],
        "clientID": raw.get("clientID") or "",
        "envdVersion": raw.get("envdVersion") or _ENVD_VERSION,
        "domain": None,
    }
    names = ("alias", "envdAccessToken", "trafficAccessToken")
    return {**reply, **{name: raw[name] for name in names if raw.get(name)}}


def _listed(raw: Mapping[str, Any]) -> dict[str, Any]:
    """An item of a list. Cube leaves out an end that never comes, and forgets much of what is paused."""
    metadata = {key: value for key, value in (raw.get("metadata") or {}).items() if key != MARK_KEY}
    started = raw.get("startedAt") or _UNKNOWN_TIME.isoformat()
    return {
        **_sandbox(raw),
        "startedAt": started,
        "endAt": raw.get("endAt") or _NEVER_ENDS,
        "cpuCount": raw.get("cpuCount") or 0,
        "memoryMB": raw.get("memoryMB") or 0,
        "diskSizeMB": raw.get("diskSizeMB") or 0,
        "state": "paused" if raw.get("state") in ("paused", "pausing") else "running",
        "metadata": metadata,
    }


def _started(item: Mapping[str, Any]) -> Cursor:
    return datetime.fromisoformat(item["startedAt"]).timestamp(), item["sandboxID"]


def _matches(item: Mapping[str, Any], params: Mapping[str, str], templates: set[str]) -> bool:
    wanted = decode_metadata_filter(params.get("metadata", ""))
    states = [state for state in params.get("state", "").split(",") if state]
    if states and item["state"] not in states:
        return False
    if templates and item["templateID"] not in templates:
        return False
    if since := params.get("startedAfter"):
        try:
            after = datetime.fromisoformat(since).timestamp()
        except ValueError:
            raise InvalidRequest("startedAfter must be an ISO 8601 time with its offset") from None
        if _started(item)[0] < after:
            return False
    return all(item["metadata"].get(key) == value for key, value in wanted.items())


def _template(info: TemplateInfo) -> dict[str, Any]:
    """Cube tells no size of a template."""
    created = (info.created_at or _UNKNOWN_TIME).isoformat()
    return {
        "templateID": info.id,
        "buildID": info.id,
        "cpuCount": 0,
        "memoryMB": 0,
        "diskSizeMB": 0,
        "public": False,
        "aliases": list(info.names),
        "names": list(info.names),
        "createdAt": created,
        "updatedAt": created,
        "createdBy": None,
        "lastSpawnedAt": None,
        "spawnCount": 0,
        "buildCount": 1,
        "envdVersion": _ENVD_VERSION,
        "buildStatus": "ready" if info.status is TemplateStatus.READY else "building",
    }


def _seconds(body: Any, name: str) -> int:
    raw = (body or {}).get(name)
    return DEFAULT_TIMEOUT_S if raw is None else int(raw)
