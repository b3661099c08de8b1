"""Comparing a backend's sandboxes with the sessions and builds that need them, and what comes of it.

`sandboxes.sessions.reap` decides; this module tells it which sessions and builds exist, keeps rows and
reports, and sees to it that one backend is compared once at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from redis.asyncio import Redis
from redis.asyncio.lock import Lock
from redis.exceptions import LockError, RedisError

from console.audit.services import Actor, record
from console.fleet.mirror import Mirror
from console.fleet.models import Backend, ReconcileReport, Session, SessionState
from console.fleet.runtime import Runtime
from console.tenants.models import Space
from sandboxes.errors import SandboxError, Unavailable
from sandboxes.sessions import Finding, FindingKind, ReapReport, SessionKey, reap
from skills.models import Build, BuildState

__all__ = ["MOST_FINDINGS", "prune_reports", "reconcile", "request_reconcile"]

log = logging.getLogger(__name__)

MOST_FINDINGS = 1000
_LEASE_S = 60.0
_BUILD_ENDED = timedelta(minutes=10)
"""So long after its end a build's sandbox is still the build's own to delete."""
_KEEP_QUIET = timedelta(days=1)
_KEEP = timedelta(days=90)
_TAKEN_UP_WITHIN = timedelta(hours=1)
_SERIOUS_FIRST = (
    FindingKind.ORPHAN,
    FindingKind.STUCK,
    FindingKind.UNVERIFIABLE,
    FindingKind.CLAIMABLE,
    FindingKind.DRIFTED,
    FindingKind.YOUNG,
)


@transaction.atomic
def request_reconcile(*, backend: Backend, dry_run: bool, actor: Actor) -> ReconcileReport:
    """Ask a worker for a run; its report, still empty, is returned at once."""
    from console.fleet.tasks import run_reconcile

    report = ReconcileReport.objects.create(
        backend=backend, dry_run=dry_run, by_hand=True, actor=actor.name
    )
    record(
        actor=actor,
        action="backend.reconcile",
        target=backend.name,
        tenant_id=backend.tenant_id,
        details={"dry_run": dry_run, "report": report.pk},
    )
    # Without a broker the report waits: the beat hands it over once there is one.
    transaction.on_commit(lambda: run_reconcile.delay(report.pk), robust=True)
    return report


async def reconcile(
    *,
    runtime: Runtime,
    backend: Backend,
    dry_run: bool,
    actor: Actor,
    report: ReconcileReport | None = None,
    now: datetime | None = None,
) -> ReconcileReport | None:
    """One whole run. None, with nothing done, if the backend is being compared already; a `report` that was
    asked for then says so. Raises nothing of a backend's or Redis's trouble: the report tells."""
    try:
        async with _one_at_a_time(runtime.redis, backend) as mine:
            if not mine:
                if report is not None:
                    report.aborted = "Another run was under way; look at its report, or ask again."
                    await _finish(report)
                return None
            # Whoever began these held the lock, and does so no more.
            begun = ReconcileReport.objects.filter(
                backend=backend, started_at__isnull=False, finished_at=None
            )
            await begun.exclude(pk=report.pk if report else "").aupdate(
                finished_at=timezone.now(), aborted="Its process ended before it was done."
            )
            report = report or ReconcileReport(backend=backend, dry_run=dry_run, actor=actor.name)
            report.started_at = timezone.now()
            report.hourly_cost = backend.hourly_cost
            await report.asave()
            await _run(runtime, backend, report, now or report.started_at)
    except SandboxError as error:
        report = report or ReconcileReport(backend=backend, dry_run=dry_run, actor=actor.name)
        report.aborted = error.message[:500]
    await _finish(report)
    return report


async def _run(runtime: Runtime, backend: Backend, report: ReconcileReport, now: datetime) -> None:
    changing = backend.changing
    client = await runtime.client(backend)
    fingerprint = backend.fingerprint
    mirror = Mirror(backend, since=timezone.now())

    async def same_account() -> bool:
        fresh = await Backend.objects.aget(pk=backend.pk)
        return fresh.fingerprint == fingerprint and not fresh.changing

    async def sessions_alive(keys: Collection[SessionKey]) -> Collection[SessionKey]:
        return await sync_to_async(_sessions_alive)(backend, keys)

    found = await reap(
        client=client,
        sessions=runtime.sessions,
        backend=backend.pk,
        tenant=backend.tenant_id,
        grace_s=settings.SKILLYARD_ORPHAN_GRACE_S,
        dry_run=report.dry_run or changing,
        now=now,
        same_account=same_account,
        sessions_alive=sessions_alive,
        builds_alive=sync_to_async(_builds_alive),
        abandoned=sync_to_async(_abandoned),
        inspect=mirror.inspect,
    )
    if not found.aborted:
        await mirror.find_lost(client, elsewhere=[f.sandbox_id for f in found.findings])
    if changing and not report.dry_run and not found.aborted:
        found.aborted = (
            "The backend's address or account is being changed, so nothing was deleted; run it again "
            "when that is done."
        )
    await _fill(report, found, mirror)


async def _fill(report: ReconcileReport, found: ReapReport, mirror: Mirror) -> None:
    report.seen, report.bound, report.building = found.seen, found.bound, found.building
    report.paused, report.corrected = mirror.paused, mirror.corrected
    report.deleted, report.aborted = found.deleted, found.aborted[:500]
    report.orphaned = len(found.of(FindingKind.ORPHAN))
    left = [f.age_s or 0 for f in found.of(FindingKind.ORPHAN) if not f.deleted]
    report.oldest_orphan_s = round(max(left)) if left else None
    report.claimable = len(found.of(FindingKind.CLAIMABLE))
    report.stuck = len(found.of(FindingKind.STUCK))
    report.unverifiable = len(found.of(FindingKind.UNVERIFIABLE))
    report.drifted = len(found.of(FindingKind.DRIFTED))
    ordered = sorted(found.findings, key=lambda f: (_SERIOUS_FIRST.index(f.kind), -(f.age_s or 0)))
    shown = ordered[:MOST_FINDINGS]
    report.findings_left_out = len(ordered) - len(shown)
    rows = await sync_to_async(_session_rows)(shown)
    report.findings = [_row(finding, rows, report) for finding in shown]


def _row(finding: Finding, rows: dict[SessionKey, str], report: ReconcileReport) -> dict[str, Any]:
    key = finding.session
    is_idle = finding.kind in (FindingKind.ORPHAN, FindingKind.CLAIMABLE, FindingKind.STUCK)
    cost = None
    if report.hourly_cost is not None and finding.age_s is not None and is_idle:
        hours = Decimal(finding.age_s) / 3600
        cost = str((hours * report.hourly_cost).quantize(Decimal("0.01")))
    return {
        "kind": finding.kind.value,
        "sandbox_id": finding.sandbox_id,
        "state": finding.state.value,
        "age_s": None if finding.age_s is None else round(finding.age_s),
        "session": key.session if key else "",
        "session_row": rows.get(key, "") if key else "",
        "space": key.space if key else "",
        "build": finding.build,
        "reason": finding.reason,
        "action": _action(finding, report),
        "error": finding.error,
        "cost": cost,
    }


def _action(finding: Finding, report: ReconcileReport) -> str:
    if finding.deleted:
        return "deleted"
    if finding.kind is not FindingKind.ORPHAN:
        return "kept"
    return "would_delete" if report.dry_run else "not_deleted"


async def _finish(report: ReconcileReport) -> None:
    report.finished_at = timezone.now()
    if report.started_at is None:
        report.started_at = report.finished_at
    await report.asave()


@asynccontextmanager
async def _one_at_a_time(redis: Redis, backend: Backend) -> AsyncIterator[bool]:
    """A lease in Redis that is renewed; a process that died has it for a minute at most. Two runs at once
    would do no harm, each deletion being looked at again under its session's lock: only work twice."""
    name = f"{settings.REDIS_NAMESPACE}:reconcile:{backend.pk}:lock"
    lock = Lock(redis, name, timeout=_LEASE_S, thread_local=False)
    try:
        taken = await lock.acquire(blocking=False)
    except (RedisError, OSError) as error:
        raise Unavailable(
            "The session store (Redis) does not answer, so nothing was compared; try again in a few "
            "seconds.",
            op="reconcile",
            retry_after_s=2.0,
            detail=f"{type(error).__name__}: {error}",
        ) from error
    if not taken:
        yield False
        return
    renewer = asyncio.create_task(_renew(lock))
    try:
        yield True
    finally:
        renewer.cancel()
        with suppress(RedisError, OSError):
            await lock.release()


async def _renew(lock: Lock) -> None:
    while True:
        await asyncio.sleep(_LEASE_S / 3)
        try:
            await lock.reacquire()
        except LockError:
            log.warning("the reconciler's lock %s was lost", lock.name)
            return
        except (RedisError, OSError) as error:
            log.warning("the reconciler's lock %s could not be renewed: %s", lock.name, error)


def _sessions_alive(backend: Backend, keys: Collection[SessionKey]) -> set[SessionKey]:
    """Those whose row exists, is not destroyed, and whose space still runs on this backend: they claim a
    sandbox that carries their tags."""
    rows = set(
        Session.objects.filter(
            space__in={key.space for key in keys},
            space__backend=backend,
            session_id__in=[key.session for key in keys],
        )
        .exclude(state=SessionState.DESTROYED)
        .values_list("space__tenant", "space", "session_id")
    )
    return {key for key in keys if (key.tenant, key.space, key.session) in rows}


def _abandoned(keys: Collection[SessionKey]) -> set[SessionKey]:
    """Those whose space's row is gone: the row goes last, so what is still there of it are leftovers."""
    spaces = Space.objects.filter(pk__in={key.space for key in keys})
    kept = set(spaces.values_list("tenant", "pk"))
    return {key for key in keys if (key.tenant, key.space) not in kept}


def _builds_alive(build_ids: Collection[str]) -> set[str]:
    """Those that run, or whose end is so young that their own clearing comes first."""
    recent = timezone.now() - _BUILD_ENDED
    return set(
        Build.objects.filter(pk__in=build_ids)
        .filter(Q(state__in=[BuildState.QUEUED, BuildState.RUNNING]) | Q(finished_at__gt=recent))
        .values_list("pk", flat=True)
    )


def _session_rows(findings: Sequence[Finding]) -> dict[SessionKey, str]:
    keys = [finding.session for finding in findings if finding.session is not None]
    rows = {
        (space, session_id): pk
        for pk, space, session_id in Session.objects.filter(
            space__in={key.space for key in keys}, session_id__in=[key.session for key in keys]
        ).values_list("pk", "space", "session_id")
    }
    return {key: rows[key.space, key.session] for key in keys if (key.space, key.session) in rows}


def prune_reports(*, now: datetime | None = None) -> int:
    """Delete old reports: those of the beat that deleted nothing after a day, all after 90 days. Returns how
    many. Ends the wait for a worker that never came."""
    now = now or timezone.now()
    ReconcileReport.objects.filter(started_at=None, created_at__lt=now - _TAKEN_UP_WITHIN).update(
        started_at=now,
        finished_at=now,
        aborted="No worker took it up; see that one is running, and ask again.",
    )
    quiet = Q(by_hand=False, deleted=0, created_at__lt=now - _KEEP_QUIET)
    return ReconcileReport.objects.filter(quiet | Q(created_at__lt=now - _KEEP)).delete()[0]
