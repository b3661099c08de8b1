"""Finding snapshots at the provider."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sandboxes.client import SandboxClient, SnapshotStore
from sandboxes.errors import Unsupported
from sandboxes.types import SnapshotInfo
from skills.models import Release

__all__ = ["all_snapshots", "find_by_name", "has_name", "snapshot_exists", "store_of"]


def store_of(client: SandboxClient) -> SnapshotStore:
    """Raises Unsupported."""
    if client.snapshots is None:
        raise Unsupported(
            "This backend can't freeze a sandbox, so it can't make releases; choose another backend.",
            provider=client.provider,
        )
    return client.snapshots


async def all_snapshots(
    client: SandboxClient, *, sandbox_id: str | None = None
) -> AsyncIterator[SnapshotInfo]:
    """Each snapshot once. Ends even if the provider hands out the same page for ever."""
    seen: set[str] = set()
    repeated = 0
    async for snapshot in store_of(client).list(sandbox_id=sandbox_id):
        if snapshot.id in seen:
            repeated += 1
            if repeated > 10_000:
                return
            continue
        seen.add(snapshot.id)
        yield snapshot


def has_name(snapshot: SnapshotInfo, planned_name: str) -> bool:
    """Providers put a team or a repository before a name, or a tag behind it."""
    return any(
        planned_name in (name, name.rpartition("/")[2], name.rpartition("/")[2].partition(":")[0])
        for name in snapshot.names
    )


async def find_by_name(client: SandboxClient, planned_name: str) -> SnapshotInfo | None:
    async for snapshot in all_snapshots(client):
        if has_name(snapshot, planned_name):
            return snapshot
    return None


async def snapshot_exists(client: SandboxClient, release: Release) -> bool:
    """Looks among the snapshots of its source first, then, before it says no, among all."""
    scopes = [release.source_sandbox_id, None] if release.source_sandbox_id else [None]
    for sandbox_id in scopes:
        async for snapshot in all_snapshots(client, sandbox_id=sandbox_id):
            if snapshot.id == release.snapshot_id:
                return True
    return False
