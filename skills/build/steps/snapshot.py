"""Freeze the result: the ledger's row first, then the snapshot under the name that the row holds."""

from __future__ import annotations

from sandboxes.errors import SandboxError, TimedOut, Unavailable
from sandboxes.types import SnapshotInfo
from skills.build import ledger
from skills.build.context import BuildContext, in_db
from skills.build.failures import BuildFailed
from skills.build.snapshots import find_by_name, store_of
from skills.models import Release, ReleaseState

__all__ = ["run"]


async def run(context: BuildContext) -> None:
    await context.still_mine()
    before = await in_db(lambda: Release.objects.filter(build=context.build).first())
    if before is not None and before.state == ReleaseState.ACTIVE:
        return
    release = await in_db(
        ledger.plan_release,
        context.build,
        packages=context.packages,
        sizes=context.sizes,
        sandbox_id=context.live.id,
    )
    info = await find_by_name(context.client, release.planned_name) if before else None
    if info is None:
        info = await _freeze(context, release)
    if not info.id:
        raise BuildFailed("snapshot_failed", "The provider made a snapshot without an id.")
    await in_db(ledger.activate, release, snapshot_id=info.id, size_bytes=info.size_bytes)
    size = f", {info.size_bytes / 2**20:,.0f} MiB" if info.size_bytes else ""
    context.log.say(f"Release {release.generation} is frozen ({info.id}{size}).")


async def _freeze(context: BuildContext, release: Release) -> SnapshotInfo:
    store = store_of(context.client)
    await context.still_mine()
    try:
        return await store.create(context.live.id, name=release.planned_name)
    except (TimedOut, Unavailable) as error:
        # It may have been made all the same: its name tells.
        found = await _found(context, release)
        if found is None:
            raise error
        return found


async def _found(context: BuildContext, release: Release) -> SnapshotInfo | None:
    try:
        return await find_by_name(context.client, release.planned_name)
    except SandboxError:
        return None
