"""Sweeps: what workers left behind is finished or undone, what nobody needs is deleted, and what the
provider and the ledger disagree about is found.

Only what is provably ours is deleted: a sandbox with the tag of a build of ours that is over, a snapshot that a
ledger row names. A backend that answers wrongly, or not, or with other credentials, is left alone.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.apps import apps
from django.db import transaction
from django.utils import timezone

from sandboxes.client import SandboxClient
from sandboxes.errors import Conflict, NotFound, SandboxError
from sandboxes.sessions.keys import TAG_BUILD, TAG_TENANT
from sandboxes.types import ListFilter, SnapshotInfo
from skills.build import ledger, recovery
from skills.build.context import in_db
from skills.build.settings import BuildSettings
from skills.build.snapshots import all_snapshots, has_name, snapshot_exists, store_of
from skills.lock import hold_space
from skills.models import Build, BuildState, Promotion, Release, ReleaseState
from skills.services.releases import why_needed

__all__ = [
    "SweepReport",
    "check_snapshot",
    "delete_snapshot",
    "prune",
    "reconcile",
    "reconcile_backend",
    "sweep",
]

log = logging.getLogger(__name__)

_REDISPATCH = timedelta(minutes=10)
_FRESH = timedelta(minutes=2)
"""A snapshot or sandbox this young may not be in the provider's listing, or not in our rows, yet."""


@dataclass(slots=True)
class SweepReport:
    """What a sweep did and saw, as ids. `unknown_snapshots` are at the provider and in no ledger row: they
    are reported and never deleted. `failures` are sentences."""

    dispatched: list[str] = field(default_factory=list)
    cleared_builds: list[str] = field(default_factory=list)
    deleted_sandboxes: list[str] = field(default_factory=list)
    deleted_releases: list[str] = field(default_factory=list)
    deleted_snapshots: list[str] = field(default_factory=list)
    broken_releases: list[str] = field(default_factory=list)
    mended_releases: list[str] = field(default_factory=list)
    unknown_snapshots: list[str] = field(default_factory=list)
    skipped_backends: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


async def sweep(*, settings: BuildSettings | None = None) -> SweepReport:
    """Hand queued and abandoned builds to workers, clear the remains of finished ones, repeat what was asked
    for and not done. Talks to a provider only where something is left. Idempotent."""
    from skills.tasks import run_build, tell_sessions

    settings = settings or BuildSettings.current()
    report = SweepReport()
    for build_id in await in_db(_to_dispatch, settings):
        run_build.delay(build_id)
        report.dispatched.append(build_id)
    for promotion_id in await in_db(_untold):
        tell_sessions.delay(promotion_id)
    for build in await in_db(_with_remains):
        with _reported(report, build.space.backend.name):
            if await _clear(build):
                report.cleared_builds.append(build.pk)
    for release_id in await in_db(_to_delete):
        with _reported(report, release_id):
            if await delete_snapshot(release_id):
                report.deleted_releases.append(release_id)
    return report


async def reconcile(*, now: datetime | None = None) -> SweepReport:
    """Compare every backend with the ledger; prune superseded releases. Idempotent."""
    report = SweepReport()
    for backend in await in_db(_backends):
        with _reported(report, backend.name):
            async with await backend.open_client() as client:
                await reconcile_backend(backend, client, report, now=now)
    return report


async def reconcile_backend(
    backend: Any, client: SandboxClient, report: SweepReport, *, now: datetime | None = None
) -> None:
    """The whole of `reconcile` for one backend. Raises what the provider raises, before anything that
    depends on the failed answer."""
    now = now or timezone.now()
    await _delete_lost_sandboxes(backend, client, report, now)
    if client.snapshots is None:
        return
    fingerprint = await in_db(lambda: backend.fingerprint)
    rows = await in_db(
        lambda: list(Release.objects.filter(backend=backend).select_related("space", "build"))
    )
    if any(row.fingerprint != fingerprint and _has_snapshot(row) for row in rows):
        # Rows of another account: whether their snapshots exist can't be seen from this one.
        report.skipped_backends.append(backend.name)
    rows = [row for row in rows if row.fingerprint == fingerprint]
    listed = {snapshot.id: snapshot async for snapshot in all_snapshots(client)}
    await _compare(client, rows, listed, report, now)
    report.deleted_releases += await _prune_all(rows, now)


async def prune(backend: Any, *, fingerprint: str, now: datetime | None = None) -> list[str]:
    """Delete the superseded releases of one account that are due, the backend's own or one it has left. The
    ids of those that are gone. Raises what the provider raises."""
    rows = await in_db(
        lambda: list(Release.objects.filter(backend=backend, fingerprint=fingerprint))
    )
    return await _prune_all(rows, now or timezone.now())


async def _prune_all(rows: list[Release], now: datetime) -> list[str]:
    return [row.pk for row in await in_db(_prunable, rows, now) if await _prune(row)]


async def delete_snapshot(release_id: str) -> bool:
    """Delete the snapshot of a release whose deletion was asked for. True if the release is deleted now.

    Left for the next sweep while something stands on it, or while nobody has the credentials of the account
    that holds it: another one's answer "not found" would be recorded as a deletion.
    """
    release = await in_db(
        lambda: Release.objects.select_related("backend", "space").get(pk=release_id)
    )
    if release.state == ReleaseState.DELETED or release.delete_requested_at is None:
        return False
    if release.snapshot_id and not await in_db(ledger.is_shared, release):
        account = await release.backend.open_account(release.fingerprint)
        if account is None:
            return False
        async with account as client:
            try:
                await store_of(client).delete(release.snapshot_id)
            except Conflict as error:
                log.info("release %s can't be deleted yet: %s", release.pk, error)
                return False
    await in_db(ledger.drop, release)
    return True


async def check_snapshot(release_id: str) -> bool:
    """Mark the release broken if its snapshot is gone. True if it exists."""
    release = await in_db(lambda: Release.objects.select_related("backend").get(pk=release_id))
    if not await in_db(lambda: release.usable_on(release.backend)):
        return False
    async with await release.backend.open_client() as client:
        if await snapshot_exists(client, release):
            return True
    await in_db(ledger.mark_broken, release, problem="Its snapshot is gone from the provider.")
    return False


async def _clear(build: Build) -> bool:
    """Remove what a build that is over left, unless a worker has the space. True if it is all gone."""
    async with hold_space(build.space_id) as lock:
        if lock is None:
            return False
        async with await build.space.backend.open_client() as client:
            await recovery.delete_sandboxes(client, build.space.tenant_id, build)
        release = await in_db(recovery.unswitched, build.pk)
        if release is None:
            return True
        account = await build.space.backend.open_account(release.fingerprint)
        if account is None:
            return False
        async with account as client:
            await recovery.abandon(client, release)
        return True


async def _delete_lost_sandboxes(
    backend: Any, client: SandboxClient, report: SweepReport, now: datetime
) -> None:
    """Sandboxes that carry the tag of a build that is over: their worker died before it noted them."""
    tags = {TAG_TENANT: backend.tenant_id}
    found = [
        info
        async for info in client.list(ListFilter(metadata=tags))
        if info.metadata.get(TAG_BUILD)
    ]
    over = await in_db(_over, [info.metadata[TAG_BUILD] for info in found], now)
    for info in found:
        if info.metadata[TAG_BUILD] in over:
            with contextlib.suppress(NotFound):
                await client.delete(info.id)
            report.deleted_sandboxes.append(info.id)


async def _compare(
    client: SandboxClient,
    rows: list[Release],
    listed: dict[str, SnapshotInfo],
    report: SweepReport,
    now: datetime,
) -> None:
    by_snapshot: dict[str, Release] = {}
    for row in rows:
        if row.snapshot_id and row.state != ReleaseState.DELETED:
            by_snapshot.setdefault(row.snapshot_id, row)
    for row in rows:
        if row.state == ReleaseState.BROKEN and row.snapshot_id in listed:
            if await in_db(ledger.mend, row):
                report.mended_releases.append(row.pk)
        elif (
            row.state in (ReleaseState.ACTIVE, ReleaseState.SUPERSEDED)
            and row.delete_requested_at is None
            and row.snapshot_id not in listed
            and (row.activated_at or row.created_at) < now - _FRESH
            and not await snapshot_exists(client, row)
        ):
            problem = "Its snapshot is gone from the provider."
            if await in_db(ledger.mark_broken, row, problem=problem):
                report.broken_releases.append(row.pk)
    for snapshot in listed.values():
        if snapshot.id in by_snapshot:
            continue
        planned = next((row for row in rows if has_name(snapshot, row.planned_name)), None)
        if planned is None:
            report.unknown_snapshots.append(snapshot.id)
            log.warning("snapshot %s is in no ledger row of ours", snapshot.id)
        elif await in_db(_is_leftover, planned):
            # The ledger planned this very name, and its build ended without it.
            with contextlib.suppress(Conflict):
                await store_of(client).delete(snapshot.id)
                report.deleted_snapshots.append(snapshot.id)


async def _prune(release: Release) -> bool:
    if not await in_db(_claim_for_pruning, release.pk):
        return False
    return await delete_snapshot(release.pk)


@transaction.atomic
def _claim_for_pruning(release_id: str) -> bool:
    """Looked at again under the space's lock: from here on nothing starts from it."""
    release = Release.objects.select_related("space").get(pk=release_id)
    space = ledger.lock_space(release.space_id)
    if release.state != ReleaseState.SUPERSEDED or why_needed(release, space):
        return False
    Release.objects.filter(pk=release_id).update(delete_requested_at=timezone.now())
    return True


def _to_dispatch(settings: BuildSettings) -> list[str]:
    """The first unfinished build of each space, if no worker seems to have it."""
    now = timezone.now()
    first: dict[str, Build] = {}
    for build in Build.objects.unfinished().order_by("pk"):
        first.setdefault(build.space_id, build)
    found = []
    for build in first.values():
        heard = build.heartbeat_at or build.created_at
        if build.state == BuildState.RUNNING:
            if heard < now - timedelta(seconds=settings.stuck_after_s):
                found.append(build.pk)
            continue
        # Its message may still be waiting: ask again only now and then.
        first_time = timedelta(seconds=settings.queued_after_s)
        patience = _REDISPATCH if build.heartbeat_at else first_time
        if heard < now - patience:
            Build.objects.filter(pk=build.pk, state=BuildState.QUEUED).update(heartbeat_at=now)
            found.append(build.pk)
    return found


def _untold() -> list[str]:
    return list(
        Promotion.objects.filter(sessions_told_at=None).order_by("pk").values_list("pk", flat=True)
    )


def _with_remains() -> list[Build]:
    over = Build.objects.exclude(state__in=[BuildState.QUEUED, BuildState.RUNNING]).select_related(
        "space__backend", "release"
    )
    sandbox_left = over.exclude(sandbox_id="")
    release_left = over.exclude(state=BuildState.SUCCEEDED).filter(
        release__state__in=[ReleaseState.BUILDING, ReleaseState.ACTIVE]
    )
    found = {build.pk: build for build in [*sandbox_left, *release_left]}
    return [b for b in found.values() if b.sandbox_id or recovery.unswitched(b.pk) is not None]


def _to_delete() -> list[str]:
    return list(
        Release.objects.filter(delete_requested_at__isnull=False)
        .exclude(state=ReleaseState.DELETED)
        .values_list("pk", flat=True)
    )


def _backends() -> list[Any]:
    return list(apps.get_model("fleet", "Backend").objects.all())


def _over(build_ids: list[str], now: datetime) -> set[str]:
    """Those that ended a while ago. An id that we don't know is not among them."""
    return set(
        Build.objects.filter(pk__in=build_ids, finished_at__lt=now - timedelta(seconds=60))
        .exclude(state__in=[BuildState.QUEUED, BuildState.RUNNING])
        .values_list("pk", flat=True)
    )


def _prunable(rows: list[Release], now: datetime) -> list[Release]:
    found = []
    for release in Release.objects.filter(
        pk__in=[row.pk for row in rows], state=ReleaseState.SUPERSEDED, delete_requested_at=None
    ).select_related("space"):
        ttl = timedelta(seconds=release.space.idle_timeout_s)
        due = release.prunable_at(session_ttl=ttl)
        if due is not None and due <= now and not why_needed(release, release.space):
            found.append(release)
    return found


def _has_snapshot(release: Release) -> bool:
    return bool(release.snapshot_id) and release.state != ReleaseState.DELETED


def _is_leftover(row: Release) -> bool:
    """No build will ever turn a snapshot of this row's name into its release."""
    row.refresh_from_db()
    if row.state == ReleaseState.BUILDING:
        return False
    return not (row.build is not None and not row.build.is_finished)


@contextlib.contextmanager
def _reported(report: SweepReport, what: str) -> Iterator[None]:
    """One backend's trouble must not stop the sweep of the others."""
    try:
        yield
    except SandboxError as error:
        report.failures.append(f"{what}: {error}")
        log.warning("sweep of %s: %s", what, error)
