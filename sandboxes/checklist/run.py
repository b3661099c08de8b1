"""What a point of the checklist works with: its sandboxes and snapshots, which go with it, and its evidence."""

from __future__ import annotations

import enum
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from sandboxes.capabilities import Capabilities
from sandboxes.client import SandboxClient, SnapshotStore
from sandboxes.errors import NotFound, SandboxError
from sandboxes.network import NetworkPolicy
from sandboxes.types import (
    CreateRequest,
    ExecRequest,
    OnTimeout,
    Sandbox,
    TimeoutPolicy,
)

__all__ = ["Check", "Failed", "Outcome", "Point", "Run", "Skipped"]

log = logging.getLogger(__name__)

_LIFE_S = 600.0


class Outcome(enum.StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """`evidence` is what was seen, line by line; `reason` why it failed or was skipped, as a sentence.
    `expected` says that it was skipped because the backend doesn't claim to do that."""

    number: int
    name: str
    title: str
    outcome: Outcome
    evidence: tuple[str, ...] = ()
    reason: str = ""
    expected: bool = False
    took_s: float = 0.0


class Failed(Exception):
    """A point is not kept; the text is the sentence."""


class Skipped(Exception):
    def __init__(self, reason: str, *, expected: bool) -> None:
        super().__init__(reason)
        self.expected = expected


@dataclass(slots=True)
class Run:
    """One point's sandboxes, snapshots and evidence."""

    client: SandboxClient
    template: str
    tags: Mapping[str, str]
    seen: list[str] = field(default_factory=list)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    def note(self, text: str) -> None:
        self.seen.append(text)

    def need(self, *capabilities: str) -> None:
        able: Capabilities = self.client.capabilities
        for name in capabilities:
            if not getattr(able, name):
                why = able.notes.get(name, "It says no more about it.")
                raise Skipped(f"This backend has no {name.replace('_', ' ')}. {why}", expected=True)

    async def sandbox(
        self,
        *,
        template: str | None = None,
        outbound: bool = False,
        inbound: bool = False,
        tags: Mapping[str, str] | None = None,
    ) -> Sandbox:
        pausing = self.client.capabilities.pause
        made = await self.client.create(
            CreateRequest(
                template=template or self.template,
                network=NetworkPolicy(outbound=outbound, inbound=inbound),
                timeout=TimeoutPolicy(
                    timeout_s=_LIFE_S, on_timeout=OnTimeout.PAUSE if pausing else OnTimeout.KILL
                ),
                metadata={**self.tags, **(tags or {})},
            )
        )
        self.stack.push_async_callback(self._delete, made.id)
        return made

    async def _delete(self, sandbox_id: str) -> None:
        try:
            await self.client.delete(sandbox_id)
        except NotFound:
            return
        except SandboxError as error:
            log.warning("Sandbox %s of a check is left to the reaper: %s", sandbox_id, error)

    async def snapshot(self, box: Sandbox, name: str) -> str:
        taken = await self.store.create(box.id, name=name)
        self.stack.push_async_callback(self.delete_snapshot, taken.id)
        return taken.id

    async def delete_snapshot(self, snapshot_id: str) -> None:
        try:
            await self.store.delete(snapshot_id)
        except SandboxError as error:
            log.warning("Snapshot %s of a check could not be deleted: %s", snapshot_id, error)

    @property
    def store(self) -> SnapshotStore:
        self.need("snapshots")
        store = self.client.snapshots
        assert store is not None  # noqa: S101 - as the capabilities say
        return store

    async def text(self, box: Sandbox, script: str, *, user: str = "user") -> str:
        argv = ("/bin/bash", "-c", script)
        result = await self.client.run(box, ExecRequest(argv=argv, user=user, timeout_s=60))
        if not result.ok:
            said = result.stderr.decode(errors="replace").strip()[:200]
            raise Failed(f"A command ended with {result.exit_code}: {said or script[:80]}.")
        return result.stdout.decode(errors="replace").strip()

    async def pause(self, box: Sandbox) -> None:
        self.need("pause")
        assert self.client.pausing is not None  # noqa: S101 - as the capabilities say
        await self.client.pausing.pause(box.id)

    async def wake(self, box: Sandbox) -> Sandbox:
        return await self.client.connect(box.id, traffic_token=box.traffic_token, timeout_s=_LIFE_S)

    def expect(self, holds: bool, seen: str, otherwise: str) -> None:
        if not holds:
            raise Failed(otherwise)
        self.note(seen)


Check = Callable[[Run], Awaitable[None]]
