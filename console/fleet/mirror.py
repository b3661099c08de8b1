"""Session rows that say what the backend says: paused when idle, woken, gone, or missed altogether.

Redis and the backend are right, the row is behind: an event could not be written, or nobody was there to
see it, because the backend pauses and stops sandboxes by itself. A row to which something happened after
the backend was asked is left alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from asgiref.sync import sync_to_async
from django.db import IntegrityError
from django.db.models import Max
from django.utils import timezone

from console.fleet import reasons
from console.fleet.history import binding_values, change_state, change_states, write_note
from console.fleet.models import Backend, Session, SessionState
from console.policies.models import NetworkPolicyRevision
from console.tenants.models import Space
from sandboxes.client import SandboxClient
from sandboxes.errors import SandboxError
from sandboxes.sessions import TAG_POLICY, TAG_RELEASE, Binding
from sandboxes.types import SandboxInfo, SandboxState
from skills.rollout import release_for_session

__all__ = ["Mirror"]

log = logging.getLogger(__name__)

_AT_ONCE = 8
_MOST_LOST = 2000
"""Looked up one by one in a run; the next run goes on."""

_ROW_STATE = {
    SandboxState.RUNNING: SessionState.ACTIVE,
    SandboxState.PAUSED: SessionState.PAUSED,
}
_SHOWN = {
    SessionState.ACTIVE: ("resumed", reasons.WOKEN),
    SessionState.PAUSED: ("paused", reasons.IDLE),
}
_Bound = Sequence[tuple[SandboxInfo, Binding]]


@dataclass(frozen=True, slots=True)
class _Target:
    """What a new sandbox of the space gets."""

    space: Space
    fingerprint: str
    policy: str

    def release(self, session_id: str) -> str:
        release = release_for_session(self.space, session_id)
        if release is None or release.fingerprint != self.fingerprint or not release.snapshot_id:
            return ""
        return release.pk


@dataclass(slots=True)
class Mirror:
    """One pass over one backend; `since` is a moment before its sandboxes were listed."""

    backend: Backend
    since: datetime
    corrected: int = 0
    paused: int = 0
    seen: set[str] = field(default_factory=set)
    _targets: dict[str, _Target | None] = field(default_factory=dict)

    async def inspect(self, batch: _Bound) -> Mapping[str, str]:
        """`sandboxes.sessions.Inspect`: brings the rows of the batch up to date."""
        self.seen.update(info.id for info, _ in batch)
        self.paused += sum(info.state is SandboxState.PAUSED for info, _ in batch)
        await self._load_targets({binding.key.space for _, binding in batch})
        rows = await sync_to_async(_rows)(batch)
        moves: dict[SessionState, list[str]] = {}
        drifted = {}
        for info, binding in batch:
            row = rows.get((binding.key.space, binding.key.session))
            if row is None or row.sandbox_id != info.id:
                await self._catch_up(row, info, binding)
            else:
                state = _ROW_STATE.get(info.state)
                if state is not None and state != row.state and row.state_changed_at < self.since:
                    moves.setdefault(state, []).append(row.pk)
            if reason := self._drift(row, info, binding):
                drifted[info.id] = reason
        for state, pks in moves.items():
            kind, reason = _SHOWN[state]
            self.corrected += await sync_to_async(change_states)(
                pks, state=state, kind=kind, reason=reason, unless_changed_since=self.since
            )
        return drifted

    async def find_lost(self, client: SandboxClient, *, elsewhere: Iterable[str]) -> None:
        """Mark the rows whose sandbox is gone, after all were seen. `elsewhere` are those that exist and are
        not bound. Each is asked for by its id first: a listing that lacks it proves nothing."""
        known = self.seen.union(elsewhere)
        reason = reasons.GONE if client.capabilities.pause else reasons.GONE_IDLE
        slots = asyncio.Semaphore(_AT_ONCE)
        rows = Session.objects.filter(
            backend=self.backend,
            state__in=[SessionState.ACTIVE, SessionState.PAUSED],
            state_changed_at__lt=self.since,
        ).order_by("state_changed_at")
        missing = [
            row
            async for row in rows.only("pk", "sandbox_id", "state").aiterator()
            if row.sandbox_id not in known
        ]

        async def ask(row: Session) -> None:
            async with slots:
                try:
                    await client.get(row.sandbox_id)
                    return
                except SandboxError as error:
                    if not error.gone:
                        log.warning("sandbox %s can't be looked up: %s", row.sandbox_id, error)
                        return
            self.corrected += await change_state(
                session=row,
                state=SessionState.LOST,
                kind="lost",
                reason=reason,
                unless_changed_since=self.since,
            )

        async with asyncio.TaskGroup() as group:
            for row in missing[:_MOST_LOST]:
                group.create_task(ask(row))

    async def _catch_up(self, row: Session | None, info: SandboxInfo, binding: Binding) -> None:
        """A row that is missing, or names a sandbox that the session had before: nobody could write it."""
        if self._targets.get(binding.key.space) is None:
            return
        values = await binding_values(binding)
        values["state"] = _ROW_STATE.get(info.state, SessionState.ACTIVE)
        values["state_changed_at"] = timezone.now()
        if row is None:
            try:
                row = await Session.objects.acreate(
                    space_id=binding.key.space, session_id=binding.key.session, **values
                )
            except IntegrityError:
                return  # its own event came through meanwhile
        else:
            rows = Session.objects.filter(pk=row.pk, state_changed_at__lt=self.since)
            if not await rows.aupdate(**values):
                return
        self.corrected += 1
        await write_note(
            session=row, kind="seen", reason=reasons.ROW_BEHIND, sandbox_id=binding.sandbox_id
        )

    def _drift(self, row: Session | None, info: SandboxInfo, binding: Binding) -> str:
        """Why a new sandbox would be another; empty if it would not."""
        target = self._targets.get(binding.key.space)
        if target is None:
            return "Its space does not exist any more."
        found = []
        if info.metadata.get(TAG_RELEASE, "") != target.release(binding.key.session):
            found.append("another release than the space's present one")
        # A policy that was applied to a running sandbox is in the row only: tags don't change.
        policies = {info.metadata.get(TAG_POLICY, "")}
        if row is not None and row.sandbox_id == info.id and row.policy is not None:
            policies.add(str(row.policy.number))
        if target.policy not in policies:
            found.append(f"a policy older than revision {target.policy}")
        return f"It has {' and '.join(found)}." if found else ""

    async def _load_targets(self, space_ids: set[str]) -> None:
        wanted = space_ids - self._targets.keys()
        if not wanted:
            return
        spaces = await Space.objects.select_related(
            "backend", "current_release", "candidate_release"
        ).ain_bulk(list(wanted))
        policies = {
            row["space"]: row["newest"]
            async for row in NetworkPolicyRevision.objects.filter(space__in=wanted)
            .order_by()
            .values("space")
            .annotate(newest=Max("number"))
        }
        for space_id in wanted:
            space = spaces.get(space_id)
            self._targets[space_id] = None
            if space is not None:
                newest = str(policies.get(space_id, ""))
                self._targets[space_id] = _Target(space, space.backend.fingerprint, newest)


def _rows(batch: _Bound) -> dict[tuple[str, str], Session]:
    found = Session.objects.filter(
        space__in={binding.key.space for _, binding in batch},
        session_id__in=[binding.key.session for _, binding in batch],
    ).select_related("policy")
    return {(row.space_id, row.session_id): row for row in found}
