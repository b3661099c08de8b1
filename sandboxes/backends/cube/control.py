"""CubeAPI's routes, where they differ from E2B's. One call each; waiting and repairing is the client's."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from sandboxes.backends.cube import failures as cube_failures
from sandboxes.backends.cube.marks import MARK_KEY, Mark
from sandboxes.errors import NotFound, SandboxError, Unavailable
from sandboxes.network import NetworkPolicy
from sandboxes.types import (
    CreateRequest,
    OnTimeout,
    Sandbox,
    SandboxInfo,
    SandboxState,
    SnapshotInfo,
    TemplateBuild,
    TemplateInfo,
    TemplateStatus,
)
from sandboxes.wire import failures
from sandboxes.wire.bodies import egress
from sandboxes.wire.control import PAUSE_TIMEOUT_S, ControlPlane
from sandboxes.wire.rest import SNAPSHOT_TIMEOUT_S
from sandboxes.wire.transport import Answer

__all__ = ["SNAPSHOT_PREFIX", "CubeControl", "Features"]

SNAPSHOT_PREFIX = "snap-"
OUTDATED = (
    "It was made with older components than the cluster has now: sandboxes may refuse to start from it or "
    "from its snapshots; rebuild it."
)
_COMPAT_KEYS = {"compatStatus", "compat_status", "status"}
_NOBODY = "skillyardprobe00000"
_FIRST_LIMIT, _LAST_LIMIT = 1000, 64_000
_TEMPLATE_STATES = {"READY": TemplateStatus.READY, "FAILED": TemplateStatus.FAILED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What this cluster's version has, found by asking for routes."""

    network_update: bool
    volumes: bool
    v2_create: bool

    @property
    def version(self) -> str:
        """The earliest release line that has all of it."""
        if self.v2_create:
            return "0.8"
        if self.network_update:
            return "0.7"
        return "0.6" if self.volumes else "0.5"


class CubeControl(ControlPlane):
    async def features(self) -> Features:
        """Three questions that change nothing."""
        await self.probe()
        return Features(
            network_update=await self._has("PUT", f"/sandboxes/{_NOBODY}/network", {}),
            volumes=await self._has("GET", "/volumes"),
            v2_create=await self._has("POST", "/v2/sandboxes", {}),
        )

    async def _has(self, method: str, path: str, body: Any = None) -> bool:
        """Whether a route exists: one that doesn't answers 404 or 405 without a body of the protocol."""
        answer = await self._plane.request(
            "open", method, path, json=body, timeout_s=self._timeout_s
        )
        known = failures.protocol_error(answer.body) is not None
        if answer.status in (404, 405):
            return known
        if answer.status in (401, 403, 429) or (answer.status >= 500 and not known):
            raise self._refusal("open", answer, "")
        return True

    def _refusal(self, op: str, answer: Answer, about: str) -> SandboxError:
        return cube_failures.refusal(self._plane.service, op, answer, about)

    # Sandboxes

    async def create(self, request: CreateRequest) -> Sandbox:
        reply = await self.create_by(new_sandbox(request))
        return self.made(reply, request)

    async def create_by(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """With a body that may hold more than the contract has words for."""
        about = f"“{body['templateID']}”"
        reply = await self._json("create", "POST", "/sandboxes", dict(body), about=about)
        return self.object("create", reply)

    def made(self, reply: Mapping[str, Any], request: CreateRequest) -> Sandbox:
        return self._sandbox("create", reply, metadata=dict(request.metadata))

    async def connect(
        self, sandbox_id: str, *, traffic_token: str | None, timeout_s: float | None
    ) -> Sandbox:
        """Zero is refused there, and nothing given keeps the timeout as it is."""
        body = {"timeout": max(1, math.ceil(timeout_s))} if timeout_s is not None else {}
        reply = await self._json(
            "connect",
            "POST",
            f"{self._path('connect', sandbox_id)}/connect",
            body,
            about=f"sandbox {sandbox_id}",
            timeout_s=PAUSE_TIMEOUT_S,
        )
        return self._sandbox("connect", reply, traffic_token=traffic_token)

    async def list_sandboxes(
        self, *, metadata: Mapping[str, str], states: Collection[SandboxState]
    ) -> AsyncIterator[SandboxInfo]:
        for item in await self.everything():
            info = self._info("list", item)
            if states and info.state not in states:
                continue
            if all(info.metadata.get(name) == value for name, value in metadata.items()):
                yield info

    async def everything(self) -> list[Mapping[str, Any]]:
        """All in one page: page tokens are ignored there, and filters are applied after the page is cut,
        or wrongly. A full page may be a cut one, so it is asked for again with more room."""
        limit = _FIRST_LIMIT
        while len(page := await self._page(limit)) >= limit:
            if limit >= _LAST_LIMIT:
                raise Unavailable(
                    f"There are more than {limit} sandboxes at {self._plane.service.place}, too many to "
                    "list; delete some, or use a cluster with fewer.",
                    provider=self._plane.service.provider,
                    op="list",
                )
            limit *= 4
        return [self.object("list", item) for item in page]

    async def _page(self, limit: int) -> list[Any]:
        reply = await self._json("list", "GET", "/v2/sandboxes", params={"limit": str(limit)})
        return self._array("list", reply)

    async def marks(self) -> Mapping[str, Mark]:
        """The marks of every sandbox that still has one, by sandbox id."""
        found: dict[str, Mark] = {}
        for item in await self._page(_LAST_LIMIT):
            fields = self.object("list", item)
            if mark := Mark.read(fields.get("metadata") or {}):
                found[str(fields.get("sandboxID"))] = mark
        return found

    async def pause(self, sandbox_id: str) -> None:
        path = f"{self._path('pause', sandbox_id)}/pause"
        about = f"sandbox {sandbox_id}"
        await self._send("pause", "POST", path, about=about, timeout_s=PAUSE_TIMEOUT_S)

    async def set_timeout(self, sandbox_id: str, timeout_s: int, *, op: str) -> None:
        """Idle seconds from now on; -1 for never. Shortens as well."""
        path = f"{self._path(op, sandbox_id)}/timeout"
        body = {"timeout": timeout_s}
        await self._send(op, "POST", path, body, about=f"sandbox {sandbox_id}")

    async def set_policy(self, sandbox_id: str, policy: NetworkPolicy) -> None:
        """Replaces all of it; what is left out is cleared."""
        path = f"{self._path('update network', sandbox_id)}/network"
        body = {"allowInternetAccess": not policy.closed_by_default, **egress(policy)}
        await self._send("update network", "PUT", path, body, about=f"sandbox {sandbox_id}")

    # Snapshots and templates

    async def list_snapshots(self, *, sandbox_id: str | None) -> AsyncIterator[SnapshotInfo]:
        """Those that are ready: others are on their way in or out."""
        params = {"limit": "100"}
        if sandbox_id is not None:
            params["sandboxID"] = sandbox_id
        async for item in self._pages("list snapshots", "/snapshots", params, key="snapshotID"):
            if str(item.get("status") or "READY").upper() != "READY":
                continue
            snapshot = self._snapshot("list snapshots", item, source=sandbox_id)
            if sandbox_id in (None, snapshot.source_sandbox_id):
                yield snapshot

    async def get_template(self, template_id: str, *, op: str = "get template") -> TemplateInfo:
        """By id or alias. Snapshots answer here too."""
        path = f"/templates/{quote(template_id, safe='')}"
        reply = await self._json(op, "GET", path, about=f"template “{template_id}”")
        return self._template(op, reply)

    async def outdated_templates(self) -> Set[str]:
        """Ids of templates that some node's components have outgrown; none where the cluster doesn't tell.
        The matrix is nested differently by version, so only what is sure is read: an object with an id, and
        below it the word STALE as a status."""
        answer = await self._plane.request(
            "list templates", "GET", "/templates/compat", timeout_s=self._timeout_s
        )
        if not answer.ok:
            return frozenset()
        try:
            return frozenset(_outdated(json.loads(answer.body), None))
        except ValueError:
            return frozenset()

    async def rebuild_template(self, template_id: str) -> None:
        """Begins it, from the image and settings that it was made of."""
        path = f"/templates/{quote(template_id, safe='')}"
        await self._send("ensure template", "POST", path, {}, about=f"template “{template_id}”")

    async def template_job(self, template_id: str) -> TemplateBuild | None:
        """Of the template's last build; None where none is known any more."""
        op = "template build"
        path = f"/templates/{quote(template_id, safe='')}"
        item = self.object(op, await self._json(op, "GET", path, about=f"template “{template_id}”"))
        if not (job := item.get("jobID")):
            return None
        try:
            reply = await self._json(op, "GET", f"{path}/builds/{quote(str(job), safe='')}/status")
        except NotFound:
            return None
        told = self.object(op, reply)
        status = _TEMPLATE_STATES.get(
            str(told.get("status") or "").upper(), TemplateStatus.BUILDING
        )
        message, progress = str(told.get("message") or ""), told.get("progress")
        failed = status is TemplateStatus.FAILED
        return TemplateBuild(
            name=template_id,
            status=status,
            step="" if failed else message,
            fraction=progress / 100 if isinstance(progress, int | float) else None,
            error=message if failed else "",
        )

    async def delete_image(self, image_id: str, *, op: str) -> None:
        """A template or a snapshot; returns when it is done, not when it is begun."""
        await self._send(
            op,
            "DELETE",
            f"/templates/{quote(image_id, safe='')}",
            params={"sync": "true"},
            about=f"“{image_id}”",
            timeout_s=SNAPSHOT_TIMEOUT_S,
        )

    # Answers

    def _sandbox(
        self,
        op: str,
        reply: Any,
        *,
        metadata: Mapping[str, str] | None = None,
        traffic_token: str | None = None,
    ) -> Sandbox:
        made = super()._sandbox(op, reply, metadata=metadata, traffic_token=traffic_token)
        return replace(made, domain=None)  # the settings' domain is the one that the proxy knows

    def _info(self, op: str, reply: Any) -> SandboxInfo:
        info = super()._info(op, reply)
        state = info.state
        if state is SandboxState.RUNNING and info.end_at and info.end_at < datetime.now(UTC):
            state = SandboxState.UNKNOWN  # over by its own word, or a clock or a timeout gone wrong
        metadata = {key: value for key, value in info.metadata.items() if key != MARK_KEY}
        return replace(info, state=state, metadata=metadata)

    def _template(self, op: str, reply: Any) -> TemplateInfo:
        item = self.object(op, reply)
        info = super()._template(op, item)
        status = str(item.get("status") or "READY").upper()
        aliases = (*(item.get("names") or ()), *(item.get("aliases") or ()))
        ready = _TEMPLATE_STATES.get(status, TemplateStatus.BUILDING)
        outdated = any(_outdated(item.get("replicas") or (), info.id))
        return replace(
            info,
            names=tuple(dict.fromkeys(str(name) for name in aliases)),
            status=ready,
            error=str(item.get("lastError") or (OUTDATED if outdated else "")),
        )


def new_sandbox(request: CreateRequest) -> dict[str, Any]:
    """The body of a create. Both network switches are always in it."""
    network = request.network
    lifecycle = {
        "onTimeout": request.timeout.on_timeout.value,
        "autoResume": request.timeout.auto_resume,
    }
    if request.timeout.on_timeout is OnTimeout.KILL:
        del lifecycle["autoResume"]
    return {
        "templateID": request.template,
        "timeout": math.ceil(request.timeout.timeout_s),
        "lifecycle": lifecycle,
        "allow_internet_access": not network.closed_by_default,
        "network": {"allowPublicTraffic": network.inbound, **egress(network)},
        "metadata": dict(request.metadata),
        "envVars": dict(request.env),
    }


def _outdated(found: Any, template_id: str | None) -> Iterator[str]:
    if isinstance(found, dict):
        named = found.get("templateID") or found.get("template_id") or template_id
        for key, value in found.items():
            if named and key in _COMPAT_KEYS and str(value).upper() == "STALE":
                yield str(named)
            yield from _outdated(value, named)
    elif isinstance(found, list):
        for item in found:
            yield from _outdated(item, template_id)


def not_found(
    control: CubeControl,
    op: str,
    what: str,
    *,
    mend: str = "refresh the list and choose another one",
) -> NotFound:
    service = control._plane.service
    return NotFound(
        f"There is no {what} at {service.place}; {mend}.",
        provider=service.provider,
        op=op,
    )
