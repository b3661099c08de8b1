"""Finding the sandboxes that no session has, and deleting those that surely are nobody's.

The provider's own list is the truth about what exists, Redis about what is bound. A sandbox is
deleted only if it carries all our tags, is bound by nobody, is past its grace, and is still unbound
when looked at again under its session's lock. Whatever cannot be verified is reported and kept.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sandboxes.client import SandboxClient
from sandboxes.errors import SandboxError
from sandboxes.sessions.binding import Binding
from sandboxes.sessions.events import Why
from sandboxes.sessions.keys import (
    SCHEMA_VERSION,
    TAG_BACKEND,
    TAG_BUILD,
    TAG_SCHEMA,
    TAG_SESSION,
    TAG_SPACE,
    TAG_TENANT,
    SessionKey,
    tagged_session,
)
from sandboxes.sessions.lock import SessionBusy
from sandboxes.sessions.manager import SessionManager
from sandboxes.types import ListFilter, SandboxInfo, SandboxState

__all__ = [
    "Abandoned",
    "BuildsAlive",
    "Finding",
    "FindingKind",
    "Inspect",
    "ReapReport",
    "SessionsAlive",
    "reap",
]

BuildsAlive = Callable[[Collection[str]], Awaitable[Collection[str]]]
"""Of these build ids, those whose build still needs its sandbox."""
SessionsAlive = Callable[[Collection[SessionKey]], Awaitable[Collection[SessionKey]]]
"""Of these sessions, those that still exist and would claim an unbound sandbox of theirs."""
Abandoned = Callable[[Collection[SessionKey]], Awaitable[Collection[SessionKey]]]
"""Of these bound sessions, those whose space exists no more, so that nobody can ever use them again."""
SameAccount = Callable[[], Awaitable[bool]]
Inspect = Callable[[Sequence[tuple[SandboxInfo, Binding]]], Awaitable[Mapping[str, str]]]
"""Shown every bound sandbox, in batches, whatever its state. Answers, by sandbox id, why it drifted
from what a new one would be; one that did not is left out."""

_BATCH = 500
_LOCK_WAIT_S = 2.0
_LIVE = (SandboxState.RUNNING, SandboxState.PAUSED)


class FindingKind(enum.StrEnum):
    ORPHAN = "orphan"
    """Nobody's and past its grace: deleted, or would be in a dry run."""
    YOUNG = "young"
    """Nobody's yet, but within its grace."""
    CLAIMABLE = "claimable"
    """Its session exists but lost its binding; the next resolve takes it back."""
    STUCK = "stuck"
    """Neither running nor paused, past the grace."""
    DRIFTED = "drifted"
    """Bound, but made from an older release or policy."""
    UNVERIFIABLE = "unverifiable"
    """Whose it is can't be told for sure; kept."""


@dataclass(slots=True, kw_only=True)
class Finding:
    """One sandbox worth a line. `age_s` is None if the provider does not say when it started.
    `error` says why a deletion failed."""

    kind: FindingKind
    sandbox_id: str
    state: SandboxState
    age_s: float | None
    reason: str
    session: SessionKey | None = None
    build: str = ""
    deleted: bool = False
    error: str = ""


@dataclass(slots=True, kw_only=True)
class ReapReport:
    """`aborted` says why nothing more was looked at or deleted; empty if the run was whole.

    Memory grows with the findings, not with the sandboxes seen.
    """

    dry_run: bool
    started_at: datetime
    seen: int = 0
    bound: int = 0
    building: int = 0
    deleted: int = 0
    findings: list[Finding] = field(default_factory=list)
    aborted: str = ""

    def of(self, kind: FindingKind) -> list[Finding]:
        return [finding for finding in self.findings if finding.kind is kind]


async def reap(
    *,
    client: SandboxClient,
    sessions: SessionManager,
    backend: str,
    tenant: str | None = None,
    grace_s: float,
    dry_run: bool,
    now: datetime | None = None,
    same_account: SameAccount | None = None,
    sessions_alive: SessionsAlive | None = None,
    builds_alive: BuildsAlive | None = None,
    abandoned: Abandoned | None = None,
    inspect: Inspect | None = None,
) -> ReapReport:
    """One pass over a backend. Never raises SandboxError: `aborted` and the findings tell.

    `same_account` says whether the backend still points at the provider account that `client` was
    opened for. Without `sessions_alive` an unbound sandbox counts as nobody's after its grace, which
    never starts before Redis was last empty; without `builds_alive` the builds' are kept, without
    `abandoned` every bound one.
    """
    run = _Reaper(
        client=client,
        sessions=sessions,
        backend=backend,
        tenant=tenant,
        grace_s=grace_s,
        now=now or datetime.now(UTC),
        same_account=same_account,
        sessions_alive=sessions_alive,
        builds_alive=builds_alive,
        abandoned=abandoned,
        inspect=inspect,
        report=ReapReport(dry_run=dry_run, started_at=now or datetime.now(UTC)),
    )
    try:
        await run.survey()
        if not dry_run:
            await run.delete_orphans()
    except SandboxError as error:
        run.report.aborted = str(error)
    return run.report


@dataclass(slots=True, kw_only=True)
class _Reaper:
    client: SandboxClient
    sessions: SessionManager
    backend: str
    tenant: str | None
    grace_s: float
    now: datetime
    same_account: SameAccount | None
    sessions_alive: SessionsAlive | None
    builds_alive: BuildsAlive | None
    abandoned: Abandoned | None
    inspect: Inspect | None
    report: ReapReport
    store_since: float = 0.0

    async def survey(self) -> None:
        """Look at everything before anything is deleted: a list that breaks off deletes nothing."""
        self.store_since = await self.sessions.store_since(now=self.now.timestamp())
        tags = {TAG_BACKEND: self.backend}
        if self.tenant is not None:
            tags[TAG_TENANT] = self.tenant
        async for batch in _batches(self.client.list(ListFilter(metadata=tags))):
            self.report.seen += len(batch)
            await self._sort(batch, tags)

    async def _sort(self, batch: Sequence[SandboxInfo], tags: dict[str, str]) -> None:
        of_sessions: list[tuple[SandboxInfo, SessionKey]] = []
        of_builds: list[SandboxInfo] = []
        for info in batch:
            key = tagged_session(info.metadata)
            if problem := _tag_problem(info, tags, key):
                self._find(FindingKind.UNVERIFIABLE, info, problem, key)
            elif key is not None:
                of_sessions.append((info, key))
            else:
                of_builds.append(info)
        await self._sort_sessions(of_sessions)
        await self._sort_builds(of_builds)

    async def _sort_sessions(self, batch: list[tuple[SandboxInfo, SessionKey]]) -> None:
        stored = await self.sessions.bindings(keys=[key for _, key in batch])
        unbound: list[tuple[SandboxInfo, SessionKey, Binding | None]] = []
        bound: list[tuple[SandboxInfo, Binding]] = []
        for (info, key), item in zip(batch, stored, strict=True):
            try:
                binding = None if item is None else item.parse(key)
            except SandboxError as error:
                self._find(FindingKind.UNVERIFIABLE, info, str(error), key)
                continue
            if binding is None or not self._is_bound(info, binding):
                unbound.append((info, key, binding))
            else:
                bound.append((info, binding))
        await self._sort_bound(bound)
        without = [key for _, key, binding in unbound if binding is None]
        alive = set(await self.sessions_alive(without)) if self.sessions_alive and without else ()
        for info, key, binding in unbound:
            if binding is None and key in alive:
                reason = "Its session has lost its binding and takes it back on its next use."
                self._find(FindingKind.CLAIMABLE, info, reason, key)
            else:
                self._judge(info, "No session is bound to it.", key)

    async def _sort_bound(self, batch: list[tuple[SandboxInfo, Binding]]) -> None:
        lost = await self._lost([binding.key for _, binding in batch])
        for info, binding in batch:
            if binding.key in lost:
                self._judge(info, "Its space does not exist any more.", binding.key)
        batch = [(info, binding) for info, binding in batch if binding.key not in lost]
        self.report.bound += len(batch)
        drifted = await self.inspect(batch) if self.inspect is not None and batch else {}
        for info, binding in batch:
            if info.state not in _LIVE and self._past_grace(info):
                self._find(FindingKind.STUCK, info, f"It is {info.raw_state}.", binding.key)
            elif info.id in drifted:
                self._find(FindingKind.DRIFTED, info, drifted[info.id], binding.key)

    async def _lost(self, keys: Collection[SessionKey]) -> Collection[SessionKey]:
        return set(await self.abandoned(keys)) if self.abandoned is not None and keys else ()

    async def _sort_builds(self, batch: list[SandboxInfo]) -> None:
        if not batch:
            return
        if self.builds_alive is None:
            for info in batch:
                reason = "It belongs to a build, and builds were not looked at."
                self._find(FindingKind.UNVERIFIABLE, info, reason)
            return
        alive = set(await self.builds_alive({info.metadata[TAG_BUILD] for info in batch}))
        for info in batch:
            if info.metadata[TAG_BUILD] in alive:
                self.report.building += 1
            else:
                self._judge(info, "Its build is over.", None)

    def _judge(self, info: SandboxInfo, reason: str, key: SessionKey | None) -> None:
        """An unbound sandbox with all our tags: what is it?"""
        if info.started_at is None:
            reason = "The backend does not say when it started, so its grace can't be told."
            self._find(FindingKind.UNVERIFIABLE, info, reason, key)
        elif not self._past_grace(info):
            self._find(FindingKind.YOUNG, info, f"{reason} It is within its grace.", key)
        elif info.state not in _LIVE:
            self._find(FindingKind.STUCK, info, f"{reason} It is {info.raw_state}.", key)
        else:
            self._find(FindingKind.ORPHAN, info, reason, key)

    async def delete_orphans(self) -> None:
        for finding in self.report.of(FindingKind.ORPHAN):
            if not await self._still_same_account(finding):
                continue
            try:
                if finding.session is not None:
                    await self._delete_of_session(finding, finding.session)
                else:
                    await self._delete_of_build(finding)
            except SessionBusy:
                self._keep(finding, FindingKind.UNVERIFIABLE, "Its session is busy; look again.")
            except SandboxError as error:
                finding.error = str(error)

    async def _still_same_account(self, finding: Finding) -> bool:
        try:
            same = self.same_account is None or await self.same_account()
            reason = "The backend points at another provider account by now."
        except SandboxError as error:
            same, reason = False, f"The backend's account could not be checked: {error}"
        if not same:
            self._keep(finding, FindingKind.UNVERIFIABLE, reason)
        return same

    async def _delete_of_session(self, finding: Finding, key: SessionKey) -> None:
        if await self._lost([key]):
            await self._unbind_and_delete(finding, key)
            return
        async with self.sessions.exclusive(key=key, wait_s=_LOCK_WAIT_S) as held:
            binding = held.snapshot.binding(key)
            if binding is not None and binding.sandbox_id == finding.sandbox_id:
                self._keep(finding, FindingKind.YOUNG, "Its session took it back meanwhile.")
                return
            if binding is None and self.sessions_alive and await self.sessions_alive([key]):
                reason = "Its session has lost its binding and takes it back on its next use."
                self._keep(finding, FindingKind.CLAIMABLE, reason)
                return
            await self._delete(finding)

    async def _unbind_and_delete(self, finding: Finding, key: SessionKey) -> None:
        """Its binding goes with it: nobody else would ever ask for that session again."""
        await self.sessions.destroy(
            key=key,
            client=self.client,
            backend=self.backend,
            why=Why.SESSION_DELETED,
            wait_s=_LOCK_WAIT_S,
        )
        # The session may have been bound to another one than this.
        await self._delete(finding)

    async def _delete_of_build(self, finding: Finding) -> None:
        if self.builds_alive is None or await self.builds_alive({finding.build}):
            self._keep(finding, FindingKind.YOUNG, "Its build is running.")
            return
        await self._delete(finding)

    async def _delete(self, finding: Finding) -> None:
        try:
            await self.client.delete(finding.sandbox_id)
        except SandboxError as error:
            if not error.gone:
                raise
        finding.deleted = True
        self.report.deleted += 1

    def _is_bound(self, info: SandboxInfo, binding: Binding) -> bool:
        return binding.sandbox_id == info.id and binding.backend == self.backend

    def _past_grace(self, info: SandboxInfo) -> bool:
        if info.started_at is None:
            return False
        # After Redis was emptied every sandbox is unbound until its session comes back.
        since = max(info.started_at.timestamp(), self.store_since)
        return self.now.timestamp() - since >= self.grace_s

    def _find(
        self, kind: FindingKind, info: SandboxInfo, reason: str, key: SessionKey | None = None
    ) -> None:
        age = (self.now - info.started_at).total_seconds() if info.started_at else None
        self.report.findings.append(
            Finding(
                kind=kind,
                sandbox_id=info.id,
                state=info.state,
                age_s=age,
                reason=reason,
                session=key,
                build=info.metadata.get(TAG_BUILD, ""),
            )
        )

    def _keep(self, finding: Finding, kind: FindingKind, reason: str) -> None:
        finding.kind = kind
        finding.reason = reason


def _tag_problem(info: SandboxInfo, tags: dict[str, str], key: SessionKey | None) -> str:
    """Why these tags don't say for sure that the sandbox is ours; empty if they do."""
    if not info.id:
        return "The backend gave it no id."
    if any(info.metadata.get(tag) != value for tag, value in tags.items()):
        return "The backend listed it against the filter; it carries other tags."
    if info.metadata.get(TAG_SCHEMA) != SCHEMA_VERSION:
        return "It was tagged by another version of the product."
    is_build = bool(info.metadata.get(TAG_BUILD))
    if is_build and TAG_SESSION in info.metadata:
        return "It is tagged as a session's and as a build's."
    if is_build and info.metadata.get(TAG_TENANT) and info.metadata.get(TAG_SPACE):
        return ""
    return "" if key is not None else "It lacks some of our tags."


async def _batches(items: AsyncIterator[SandboxInfo]) -> AsyncIterator[list[SandboxInfo]]:
    """Each sandbox once, even if the provider repeats a page."""
    seen: set[str] = set()
    batch: list[SandboxInfo] = []
    async for info in items:
        if info.id and info.id in seen:
            continue
        seen.add(info.id)
        batch.append(info)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
