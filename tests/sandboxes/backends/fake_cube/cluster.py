"""The cluster's own memory: its sandboxes and snapshots, their timeouts, and the engine that runs them.

The engine is a sandboxd, which knows nothing of idle times, tokens and states as Cube tells them: those are
kept here.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from tests.sandboxes.backends.fake_cube.faults import Faults
from tests.sandboxes.backends.fake_cube.profiles import Profile

__all__ = ["Box", "Cluster", "Refused", "Snapshot"]

NEVER = -1
_FOREVER_S = 86_000
_SWEEP_S = 0.1


class Refused(Exception):
    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass
class Box:
    id: str
    template_id: str
    metadata: dict[str, str]
    timeout_s: int
    on_timeout: str
    auto_resume: bool
    token: str | None
    engine_token: str | None
    envd_token: str = ""
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    state: str = "running"
    deadline: float | None = None
    pauses_at: float | None = None
    reaped_at: float | None = None
    forgotten: bool = False
    in_flight: int = 0

    def touch(self, timeout_s: int | None = None) -> None:
        """Used: the idle time begins anew."""
        if timeout_s is not None:
            self.timeout_s = timeout_s
        never = self.timeout_s == NEVER
        self.deadline = None if never else time.monotonic() + self.timeout_s


@dataclass
class Snapshot:
    id: str
    names: list[str]
    origin: str
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    status: str = "READY"


class Cluster:
    def __init__(self, engine: httpx.AsyncClient, profile: Profile, faults: Faults) -> None:
        self.engine, self.profile, self.faults = engine, profile, faults
        self.boxes: dict[str, Box] = {}
        self.killed: set[str] = set()
        self.snapshots: dict[str, Snapshot] = {}
        self.deleted_snapshots: set[str] = set()
        self.outdated: set[str] = set()
        """#24: templates that were made before the cluster's upgrade."""
        self.template_jobs: dict[str, dict[str, Any]] = {}
        """The last build of a template, by the template's id: id, status, progress, message."""
        self.woken: list[str] = []
        """Each resume of the engine: to prove that looking and deleting wakes nothing."""

    async def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        return await self.engine.request(method, path, json=body)

    def box(self, sandbox_id: str) -> Box:
        if not all(letter.isalnum() or letter == "-" for letter in sandbox_id):
            raise Refused(400, "invalid sandbox id")
        if sandbox_id not in self.boxes:
            raise Refused(404, f"sandbox {sandbox_id} not found")
        return self.boxes[sandbox_id]

    async def create(self, body: dict[str, Any]) -> Box:
        template = str(body["templateID"])
        if template in self.outdated:
            raise Refused(409, f"template {template} is STALE on every node and needs redo")
        lifecycle = body.get("lifecycle") or {}
        network = dict(body.get("network") or {})
        answer = await self.ask(
            "POST",
            "/sandboxes",
            {
                "templateID": await self._engine_template(template),
                "timeout": _FOREVER_S,
                "secure": True,
                "allow_internet_access": body.get("allow_internet_access", True),
                "network": network,
                "envVars": body.get("envVars") or body.get("envs") or {},
            },
        )
        if answer.status_code != 201:
            status = 500 if answer.status_code >= 500 else 400
            raise Refused(status, answer.json()["message"])
        made = answer.json()
        token = None if network.get("allowPublicTraffic", True) else secrets.token_hex(16)
        box = Box(
            id=made["sandboxID"],
            template_id=template,
            metadata=dict(body.get("metadata") or {}),
            timeout_s=int(body.get("timeout", NEVER)),
            on_timeout=lifecycle.get("onTimeout", "kill"),
            auto_resume=bool(lifecycle.get("autoResume", False)),
            token=token,
            engine_token=made.get("trafficAccessToken"),
            envd_token=made["envdAccessToken"],
        )
        box.touch()
        self.boxes[box.id] = box
        return box

    async def _engine_template(self, template: str) -> str:
        if template in self.snapshots:
            return template
        for item in (await self.ask("GET", "/templates")).json():
            names = {f"tpl-{item['templateID']}", *item["names"], *item["aliases"]}
            if template in names and not item["templateID"].startswith("snap-"):
                return str(item["templateID"])
        status = self.profile.refused_template
        code = "CubeMaster returned error code 130404: " if status == 500 else ""
        raise Refused(status, f"{code}template {template} not found")

    async def pause(self, box: Box) -> None:
        if box.state != "running":
            raise Refused(500, "CubeMaster returned error code 130490: sandbox not running")
        answer = await self.ask("POST", f"/sandboxes/{box.id}/pause", {})
        assert answer.status_code in (204, 409), answer.text
        lag_s = self.faults.pause_lag_s
        if self.faults.pausing_forever:
            box.state = "pausing"
        elif lag_s:
            box.state, box.pauses_at = "pausing", time.monotonic() + lag_s
        else:
            box.state = "paused"
        box.forgotten = box.forgotten or self.faults.forget_on_pause
        reap_s = self.faults.reap_killable_when_paused_after_s
        if reap_s is not None and box.on_timeout == "kill" and box.timeout_s != NEVER:
            box.reaped_at = time.monotonic() + reap_s
        box.deadline = None

    async def resume(self, box: Box) -> None:
        self.woken.append(box.id)
        answer = await self.ask("POST", f"/sandboxes/{box.id}/connect", {"timeout": _FOREVER_S})
        assert answer.is_success, answer.text
        box.state, box.reaped_at = "running", None
        box.touch()

    async def kill(self, box: Box) -> None:
        answer = await self.ask("DELETE", f"/sandboxes/{box.id}")
        assert answer.status_code in (204, 404), answer.text
        self.boxes.pop(box.id, None)
        self.killed.add(box.id)

    async def snapshot(self, box: Box, name: str | None) -> Snapshot:
        if box.state != "running" and self.faults.snapshot_of_paused_refused:
            raise Refused(409, "sandbox is not in the right state for a snapshot")
        answer = await self.ask(
            "POST", f"/sandboxes/{box.id}/snapshots", {"name": name or secrets.token_hex(8)}
        )
        assert answer.is_success, answer.text
        made_id = answer.json()["snapshotID"]
        snapshot = Snapshot(id=made_id, names=[name or made_id], origin=box.id)
        self.snapshots[made_id] = snapshot
        return snapshot

    async def delete_snapshot(self, snapshot: Snapshot) -> None:
        users = [box for box in self.boxes.values() if box.template_id == snapshot.id]
        if users and self.profile.snapshot_in_use_is_kept:
            raise Refused(409, "operation in progress")
        answer = await self.ask("DELETE", f"/templates/{snapshot.id}")
        if answer.status_code == 409:
            raise Refused(
                500, "CubeMaster returned error code 130409: sandboxes using the template"
            )
        assert answer.status_code in (204, 404), answer.text
        del self.snapshots[snapshot.id]
        self.deleted_snapshots.add(snapshot.id)

    async def sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            for box in list(self.boxes.values()):
                await self._sweep(box, time.monotonic())

    async def _sweep(self, box: Box, now: float) -> None:
        if box.in_flight:
            box.touch()
        if box.pauses_at is not None and now >= box.pauses_at:
            box.state, box.pauses_at = "paused", None
        if box.reaped_at is not None and now >= box.reaped_at:
            await self.kill(box)
        elif box.state == "running" and box.deadline is not None and now >= box.deadline:
            if box.on_timeout == "pause":
                await self.pause(box)
            else:
                await self.kill(box)

    def end_at(self, box: Box) -> datetime | None:
        if self.faults.end_at_in_the_past:
            return datetime.now(UTC) - timedelta(hours=1)
        if box.timeout_s == NEVER:
            return None
        left = (box.deadline or time.monotonic() + box.timeout_s) - time.monotonic()
        return datetime.now(UTC) + timedelta(seconds=left)

    async def close(self) -> None:
        for box in list(self.boxes.values()):
            await self.kill(box)
