"""Deleting a space with all that is in it: sessions, snapshots, rows, in that order.

The wish is a mark on the row, and from then on nothing new happens in the space. A worker carries it out; one
that dies, or meets a provider that is away, leaves a space that the next beat goes on with. The row goes last:
as long as it is there, nothing that costs money is forgotten.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict, dataclass
from typing import Any

from asgiref.sync import sync_to_async
from django.apps import apps
from django.db import transaction
from django.utils import timezone

from console.audit.services import Actor, record
from console.fleet import sessions as live
from console.fleet.models import Attachment, Session, SessionState
from console.fleet.runtime import Runtime
from console.tenants.models import ApiKey, Space
from sandboxes.client import SandboxClient
from sandboxes.errors import Conflict, SandboxError
from sandboxes.sessions import TAG_SPACE, TAG_TENANT
from sandboxes.sessions.keys import SessionKey, tagged_session
from sandboxes.types import ListFilter
from skills import reaper
from skills.build import ledger, recovery
from skills.build.snapshots import all_snapshots, has_name, store_of
from skills.lock import SpaceLock, hold_space
from skills.models import Build, Release, ReleaseState
from skills.services import cancel_build

__all__ = [
    "Consequences",
    "RemovalUnconfirmed",
    "pending",
    "remove",
    "request_removal",
    "what_goes",
]

log = logging.getLogger(__name__)

_AT_ONCE = 8
_LEASE_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequences:
    """What goes with a space. `unreachable` are releases whose snapshot lies in a provider account that its
    backend does not use any more: it can't be deleted from here."""

    live_sessions: int
    sessions: int
    attachments: int
    releases: int
    unreachable: tuple[str, ...]
    builds: int
    keys: int

    @property
    def nothing(self) -> bool:
        return not (self.sessions or self.releases or self.builds or self.keys)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class RemovalUnconfirmed(Conflict):
    """Something would go that was not agreed to. `consequences` says what."""

    retryable = False

    def __init__(self, message: str, consequences: Consequences) -> None:
        super().__init__(message, op="space")
        self.consequences = consequences


def what_goes(space: Space) -> Consequences:
    """`space` comes with its backend. Asks only the database."""
    sessions = Session.objects.filter(space=space)
    kept = _kept_releases(space)
    reachable = space.backend.reachable_accounts()
    return Consequences(
        live_sessions=sessions.filter(state__in=[SessionState.ACTIVE, SessionState.PAUSED]).count(),
        sessions=sessions.count(),
        attachments=Attachment.objects.filter(session__space=space).count(),
        releases=len(kept),
        unreachable=tuple(
            str(row) for row in kept if row.snapshot_id and row.fingerprint not in reachable
        ),
        builds=Build.objects.unfinished().filter(space=space).count(),
        keys=ApiKey.objects.filter(space=space, revoked_at=None).count(),
    )


def _kept_releases(space: Space) -> list[Release]:
    return list(Release.objects.filter(space=space).exclude(state=ReleaseState.DELETED))


@transaction.atomic
def request_removal(
    *, space: Space, actor: Actor, confirm: str = "", leave_snapshots: bool = False
) -> Space:
    """Mark the space for a worker, revoke its keys, cancel its builds. Idempotent.

    Raises RemovalUnconfirmed unless `confirm` is its short name (an empty space needs none), and while it has
    snapshots that can't be reached, unless `leave_snapshots` says that these stay where they are.
    """
    rows = Space.objects.select_for_update(of=("self",)).select_related("backend")
    row = rows.get(pk=space.pk)
    going = what_goes(row)
    if not going.nothing and confirm != row.slug and row.delete_requested_at is None:
        raise RemovalUnconfirmed(
            f"With the space “{row.name}” go {going.live_sessions} running and sleeping sessions of "
            f"{going.sessions}, {going.releases} releases, {going.builds} builds and {going.keys} keys; "
            f"confirm it with the space's short name, “{row.slug}”.",
            going,
        )
    if going.unreachable and not (leave_snapshots or row.delete_leaves_snapshots):
        raise RemovalUnconfirmed(
            f"The snapshots of {', '.join(going.unreachable[:10])} lie in another provider account than "
            f"“{row.backend.name}” uses now; restore its credentials, or agree to leave them there.",
            going,
        )
    if row.delete_requested_at is None:
        row.delete_requested_at, row.delete_requested_by = timezone.now(), actor.name
        ApiKey.objects.filter(space=row, revoked_at=None).update(revoked_at=timezone.now())
        record(
            actor=actor,
            action="space.delete",
            target=row.slug,
            tenant_id=row.tenant_id,
            space_id=row.pk,
            details={"space": row.pk, "name": row.name, **going.to_json()},
        )
    row.delete_leaves_snapshots = row.delete_leaves_snapshots or leave_snapshots
    row.save(
        update_fields=["delete_requested_at", "delete_requested_by", "delete_leaves_snapshots"]
    )
    _cancel_builds(row, actor)
    from console.fleet.tasks import remove_space

    # Without a broker the mark waits for the beat.
    transaction.on_commit(lambda: remove_space.delay(row.pk), robust=True)
    return row


def _cancel_builds(space: Space, actor: Actor) -> None:
    for build in Build.objects.unfinished().filter(space=space):
        cancel_build(build=build, actor=actor)


def pending() -> list[str]:
    """Spaces whose deletion is asked for and not done."""
    return list(
        Space.objects.filter(delete_requested_at__isnull=False).values_list("pk", flat=True)
    )


async def remove(*, runtime: Runtime, space_id: str) -> bool:
    """Carry a deletion that was asked for as far as it goes. True once the space is gone; else the row says
    what it waits for. Safe to call again at any time, and beside another worker."""
    rows = Space.objects.select_related("backend", "tenant")
    space = await rows.filter(pk=space_id, delete_requested_at__isnull=False).afirst()
    if space is None:
        return not await Space.objects.filter(pk=space_id).aexists()
    try:
        async with hold_space(space.pk, lease_s=_LEASE_S) as lock:
            if lock is None:
                # A build that is being stopped, or another worker at the same.
                return False
            problem = await _Removal(space, runtime, lock).run()
    except SandboxError as error:
        problem = error.message
    if problem:
        log.warning("space %s can't be deleted yet: %s", space.pk, problem)
    await Space.objects.filter(pk=space.pk).aupdate(delete_problem=problem[:500])
    return not problem


class _Removal:
    """One pass, by whoever holds the space's lock."""

    def __init__(self, space: Space, runtime: Runtime, lock: SpaceLock) -> None:
        self.space, self.runtime, self._lock = space, runtime, lock
        self.actor = Actor(name=space.delete_requested_by or "system")

    async def run(self) -> str:
        """What is still to be waited for; empty once the space is gone. Raises what a provider raises."""
        await sync_to_async(_cancel_builds)(self.space, self.actor)
        if await Build.objects.unfinished().filter(space=self.space).aexists():
            return "A build of it is still being stopped."
        client = await self.runtime.client(self.space.backend)
        await self._end_sessions(client)
        await self._renew()
        if problem := await self._delete_snapshots(client):
            return problem
        # Once more: a call that was under way when the space was marked may have made one.
        await self._end_sessions(client)
        return await sync_to_async(_drop)(self.space.pk, self.actor)

    async def _renew(self) -> None:
        if not await self._lock.renew():
            raise Conflict("Another worker has taken the space's deletion up.", op="space")

    async def _end_sessions(self, client: SandboxClient) -> None:
        """Of every session that has a row, a binding or a sandbox; and every other sandbox of the space."""
        keys: set[SessionKey] = set()
        rows = Session.objects.filter(space=self.space).exclude(state=SessionState.DESTROYED)
        async for session_id in rows.values_list("session_id", flat=True):
            keys.add(live.session_key(self.space, session_id))
        tenant, space = self.space.tenant_id, self.space.pk
        async for key in self.runtime.sessions.bound_sessions(tenant=tenant, space=space):
            keys.add(key)
        others = []
        tags = {TAG_TENANT: tenant, TAG_SPACE: space}
        async for info in client.list(ListFilter(metadata=tags)):
            # Looked at again: a provider that ignores the filter must not cost another space anything.
            if any(info.metadata.get(tag) != value for tag, value in tags.items()):
                continue
            owner = tagged_session(info.metadata)
            if owner is None:
                others.append(info.id)
            else:
                keys.add(owner)
        await self._each([self._destroy(key) for key in keys])
        await self._each([self._delete(client, sandbox_id) for sandbox_id in others])

    async def _each(self, work: list[Any]) -> None:
        """All of them, a few at once; the first failure is raised when the rest is done."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(item: Any) -> None:
            async with slots:
                await item
                await self._renew()

        results = await asyncio.gather(*(one(item) for item in work), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _destroy(self, key: SessionKey) -> None:
        await live.destroy(
            runtime=self.runtime, space=self.space, session_id=key.session, actor=self.actor
        )

    async def _delete(self, client: SandboxClient, sandbox_id: str) -> None:
        try:
            await client.delete(sandbox_id)
        except SandboxError as error:
            if not error.gone:
                raise

    async def _delete_snapshots(self, client: SandboxClient) -> str:
        """Through the ledger: each row is closed only when its snapshot is gone."""
        await Space.objects.filter(pk=self.space.pk).aupdate(
            current_release=None, candidate_release=None
        )
        reachable = await sync_to_async(self.space.backend.reachable_accounts)()
        waiting = []
        for release in await sync_to_async(_kept_releases)(self.space):
            await self._renew()
            if release.fingerprint not in reachable:
                if not self.space.delete_leaves_snapshots:
                    waiting.append(str(release))
                    continue
                await sync_to_async(_leave)(release, self.space, self.actor)
            elif not await self._delete_release(release):
                waiting.append(str(release))
        if waiting:
            return f"These snapshots could not be deleted yet: {', '.join(waiting[:10])}."
        if client.snapshots is not None:
            await self._delete_leftovers(client)
            await self._delete_clients_snapshots(client)
        return ""

    async def _delete_release(self, release: Release) -> bool:
        if not release.snapshot_id:
            account = await self.space.backend.open_account(release.fingerprint)
            if account is None:
                return False
            async with account as client:
                await recovery.abandon(client, release)
            return True
        if release.delete_requested_at is None:
            await Release.objects.filter(pk=release.pk).aupdate(delete_requested_at=timezone.now())
        return await reaper.delete_snapshot(release.pk)

    async def _delete_leftovers(self, client: SandboxClient) -> None:
        """Snapshots of builds that were cut off: they bear a name that the ledger planned for this space, and
        no other release stands on them."""
        names = [
            name
            async for name in Release.objects.filter(space=self.space).values_list(
                "planned_name", flat=True
            )
        ]
        async for snapshot in all_snapshots(client):
            if not any(has_name(snapshot, name) for name in names):
                continue
            if not await Release.objects.kept().filter(snapshot_id=snapshot.id).aexists():
                await store_of(client).delete(snapshot.id)

    async def _delete_clients_snapshots(self, client: SandboxClient) -> None:
        """Those that clients of the gateway made for themselves in this space."""
        model: Any = apps.get_model("gateway", "GatewaySnapshot")
        async for row in model.objects.filter(space=self.space, backend=self.space.backend):
            await store_of(client).delete(row.snapshot_id)
            await row.adelete()


@transaction.atomic
def _leave(release: Release, space: Space, actor: Actor) -> None:
    """Forget a snapshot that can't be reached, and say in the audit log which."""
    record(
        actor=actor,
        action="release.leave",
        target=f"{space.slug} {release}",
        tenant_id=space.tenant_id,
        space_id=space.pk,
        details={"snapshot": release.snapshot_id, "name": release.planned_name},
    )
    ledger.drop(release)


@transaction.atomic
def _drop(space_id: str, actor: Actor) -> str:
    """Delete the row, if nothing that lives or costs hangs on it."""
    space = Space.objects.select_for_update().filter(pk=space_id).first()
    if space is None:
        return ""
    if Session.objects.filter(space=space).exclude(state=SessionState.DESTROYED).exists():
        return "A session of it began meanwhile."
    if Build.objects.unfinished().filter(space=space).exists() or _kept_releases(space):
        return "A build of it began meanwhile."
    record(
        actor=actor,
        action="space.deleted",
        target=space.slug,
        tenant_id=space.tenant_id,
        details={"space": space.pk, "name": space.name},
    )
    space.delete()
    return ""
