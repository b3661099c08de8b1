"""What a worker that died left behind, and what a build that failed leaves: finish it or undo it."""

from __future__ import annotations

import asyncio
import contextlib

from sandboxes.client import SandboxClient
from sandboxes.errors import NotFound, SandboxError
from sandboxes.sessions.keys import TAG_BUILD, TAG_SPACE, TAG_TENANT
from sandboxes.types import ListFilter
from skills.build import ledger
from skills.build.context import BuildContext, in_db
from skills.build.snapshots import find_by_name, store_of
from skills.models import Build, BuildState, BuildStep, Release, ReleaseState

__all__ = ["abandon", "delete_sandboxes", "resume", "undo", "unswitched"]

_UNDO_S = 60.0


async def resume(context: BuildContext) -> int:
    """Clear away what earlier attempts left and return the number of the step to begin with: 0, or the
    switch if their snapshot exists."""
    build = context.build
    if build.attempt == 1:
        return 0
    context.log.say(f"The worker before this one stopped; this is attempt {build.attempt}.")
    await delete_sandboxes(context.client, context.space.tenant_id, build)
    release = await in_db(lambda: Release.objects.filter(build=build).first())
    if release is None:
        return 0
    if release.state == ReleaseState.BUILDING:
        found = await find_by_name(context.client, release.planned_name)
        if found is None:
            return 0
        await context.still_mine()
        await in_db(ledger.activate, release, snapshot_id=found.id, size_bytes=found.size_bytes)
    context.log.say("Its snapshot exists: only the switch is left.")
    return list(BuildStep).index(BuildStep.SWITCH)


async def undo(context: BuildContext) -> None:
    """Take back the release of a build that did not succeed. What fails here is the sweep's."""
    release = await in_db(unswitched, context.build.pk)
    if release is None:
        return
    try:
        async with asyncio.timeout(_UNDO_S):
            await abandon(context.client, release)
    except (SandboxError, TimeoutError) as error:
        context.log.say(f"The snapshot could not be deleted yet: {error}")


async def abandon(client: SandboxClient, release: Release) -> None:
    """Delete the snapshot of a release that will never serve, then close its row. Idempotent."""
    snapshot_id = release.snapshot_id
    if not snapshot_id:
        found = await find_by_name(client, release.planned_name)
        snapshot_id = found.id if found else ""
    shared = await in_db(ledger.is_shared, release)
    if snapshot_id and not shared:
        await store_of(client).delete(snapshot_id)
    await in_db(ledger.drop, release)


async def delete_sandboxes(client: SandboxClient, tenant_id: str, build: Build) -> int:
    """Delete every sandbox that carries the build's tag. Returns how many there were."""
    tags = {TAG_TENANT: tenant_id, TAG_SPACE: build.space_id, TAG_BUILD: build.pk}
    found = [info.id async for info in client.list(ListFilter(metadata=tags))]
    for sandbox_id in found:
        with contextlib.suppress(NotFound):
            await client.delete(sandbox_id)
    await in_db(lambda: Build.objects.filter(pk=build.pk).update(sandbox_id=""))
    return len(found)


def unswitched(build_id: str) -> Release | None:
    """The release of a build that ended without a switch, if it is still to be undone."""
    build = Build.objects.get(pk=build_id)
    if build.state in (BuildState.SUCCEEDED, BuildState.QUEUED, BuildState.RUNNING):
        return None
    return (
        Release.objects.filter(build=build, state__in=[ReleaseState.BUILDING, ReleaseState.ACTIVE])
        .exclude(promotions__isnull=False)
        .first()
    )
