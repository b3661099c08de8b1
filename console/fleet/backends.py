"""Use cases of backends: add, edit, point at another account, delete.

An edit that points a backend elsewhere is made under a cordon: a lease in the row, during which no session
gets a new sandbox there. Everything here is async, because the provider is asked; rows change in one
transaction each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from console.audit.services import Actor, record
from console.fleet.connection import Connection, check_urls, read
from console.fleet.inventory import Inventory, take_inventory
from console.fleet.models import Backend, Session, SessionState
from console.fleet.services import create_backend
from console.tenants.models import Space, Tenant
from sandboxes.errors import Conflict, InvalidRequest
from skills.models import Build, BuildState, Release, ReleaseState

__all__ = [
    "BackendCordoned",
    "BackendInUse",
    "Change",
    "InventoryUnverifiable",
    "SandboxesStillLive",
    "add_backend",
    "delete_backend",
    "edit_backend",
    "preview_change",
    "silent_releases",
]

_CORDON = timedelta(minutes=2)


class BackendCordoned(Conflict):
    """Somebody else is changing it just now."""


class BackendInUse(InvalidRequest):
    """Spaces or releases need it. `names` says which."""

    def __init__(self, message: str, names: list[str]) -> None:
        super().__init__(message, op="backend")
        self.names = names


class SandboxesStillLive(Conflict):
    """Sandboxes live at the account that it points to. `inventory` lists them."""

    retryable = False

    def __init__(self, message: str, inventory: Inventory) -> None:
        super().__init__(message, op="backend", status=409)
        self.inventory = inventory


class InventoryUnverifiable(SandboxesStillLive):
    """The provider couldn't be asked what lives there; may be forced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What an edit would do, to be shown before it is made.

    `silent` are releases that could no longer start there, `heard` those that could again; `sessions` counts
    the live sessions of spaces that would fall back to their base template, `spaces`.
    """

    identity: list[str]
    old_fingerprint: str
    new_fingerprint: str
    silent: list[Release] = field(default_factory=list)
    heard: list[Release] = field(default_factory=list)
    spaces: list[Space] = field(default_factory=list)
    sessions: int = 0

    @property
    def moves_account(self) -> bool:
        return self.old_fingerprint != self.new_fingerprint


async def add_backend(
    *, tenant: Tenant, name: str, provider: str, values: Mapping[str, Any], actor: Actor
) -> Backend:
    """InvalidRequest names what is wrong with the name or a setting."""
    connection = read(provider, values)
    await check_urls(connection)
    return await sync_to_async(create_backend)(
        tenant=tenant, name=name, provider=provider, values=connection.values, actor=actor
    )


def preview_change(backend: Backend, connection: Connection) -> Change:
    """What saving this connection would do. Asks only the database."""
    old = Connection.of(backend)
    change = Change(
        identity=old.identity_changes(connection),
        old_fingerprint=old.fingerprint,
        new_fingerprint=connection.fingerprint,
    )
    if not change.moves_account:
        return change
    kept = Release.objects.kept().filter(backend=backend).select_related("space")
    change.silent.extend(kept.filter(fingerprint=change.old_fingerprint))
    change.heard.extend(kept.filter(fingerprint=change.new_fingerprint))
    silent = [release.pk for release in change.silent]
    change.spaces.extend(Space.objects.filter(backend=backend, current_release__in=silent))
    sessions = Session.objects.filter(
        space__in=change.spaces, state__in=[SessionState.ACTIVE, SessionState.PAUSED]
    ).count()
    return Change(
        identity=change.identity,
        old_fingerprint=change.old_fingerprint,
        new_fingerprint=change.new_fingerprint,
        silent=change.silent,
        heard=change.heard,
        spaces=change.spaces,
        sessions=sessions,
    )


def silent_releases(backend: Backend) -> list[Release]:
    """Releases that serve a space of this backend and can't start on it: to be rebuilt."""
    serving = Release.objects.filter(
        pk__in=Space.objects.filter(backend=backend).values("current_release")
    )
    return [row for row in serving.select_related("space") if not row.usable_on(backend)]


async def edit_backend(
    *,
    backend: Backend,
    name: str,
    connection: Connection,
    actor: Actor,
    force: bool = False,
) -> Backend:
    """Save a name and a connection. `force` goes on where the old account can't be asked; what is seen to
    live is never overridden.

    Raises BackendCordoned while somebody else changes it, SandboxesStillLive or InventoryUnverifiable if its
    identity changes, InvalidRequest for a name that is taken or an address that is refused.
    """
    if connection.provider != backend.provider:
        raise InvalidRequest("The kind of a backend can't be changed; add another one.")
    await check_urls(connection)
    identity = Connection.of(backend).identity_changes(connection)
    if not identity:
        return await sync_to_async(_save)(backend, name, connection, actor, identity, "")
    async with _cordon(backend):
        unverifiable = await _require_nothing_live(
            backend, force=force, what="be pointed elsewhere"
        )
        return await sync_to_async(_save)(backend, name, connection, actor, identity, unverifiable)


async def delete_backend(*, backend: Backend, actor: Actor, force: bool = False) -> None:
    """Raises BackendInUse while spaces or releases need it, else as `edit_backend` does."""
    await sync_to_async(_require_unused)(backend)
    async with _cordon(backend):
        unverifiable = await _require_nothing_live(backend, force=force, what="be deleted")
        await sync_to_async(_delete)(backend, actor, unverifiable)


@asynccontextmanager
async def _cordon(backend: Backend) -> AsyncIterator[None]:
    """A lease: a process that dies holds it for two minutes at most."""
    now = timezone.now()
    until = now + _CORDON
    free = Q(cordoned_until=None) | Q(cordoned_until__lt=now)
    taken = await Backend.objects.filter(free, pk=backend.pk).aupdate(cordoned_until=until)
    if not taken:
        raise BackendCordoned(
            f"The backend “{backend.name}” is being changed by somebody else; try again in two minutes.",
            op="backend",
            status=423,
            retry_after_s=_CORDON.total_seconds(),
        )
    try:
        yield
    finally:
        mine = Backend.objects.filter(pk=backend.pk, cordoned_until=until)
        await mine.aupdate(cordoned_until=None)


async def _require_nothing_live(backend: Backend, *, force: bool, what: str) -> str:
    """Why nothing is known, if that was forced; empty if nothing lives there."""
    busy = Build.objects.filter(
        space__backend=backend, state__in=[BuildState.QUEUED, BuildState.RUNNING]
    )
    if await busy.aexists():
        raise Conflict(
            f"A build runs on “{backend.name}”, so it can't {what}; wait for it or cancel it.",
            op="backend",
        )
    inventory = await take_inventory(backend)
    if inventory.live:
        raise SandboxesStillLive(
            f"{len(inventory.live)} sandboxes live on “{backend.name}”, so it can't {what}; destroy their "
            "sessions first.",
            inventory,
        )
    if inventory.unverifiable and not force:
        raise InventoryUnverifiable(
            f"What lives on “{backend.name}” can't be found out, so it can't {what} without force. "
            f"{inventory.unverifiable}",
            inventory,
        )
    return inventory.unverifiable


@transaction.atomic
def _save(
    backend: Backend,
    name: str,
    connection: Connection,
    actor: Actor,
    identity: list[str],
    unverifiable: str,
) -> Backend:
    row = Backend.objects.select_for_update().get(pk=backend.pk)
    if Backend.objects.filter(tenant=row.tenant_id, name=name).exclude(pk=row.pk).exists():
        raise InvalidRequest(f"A backend called “{name}” exists already; choose another name.")
    old = Connection.of(row)
    changed = sorted(
        key
        for key in {*old.values, *connection.values}
        if old.values.get(key) != connection.values.get(key)
    )
    before = old.fingerprint
    row.name = name
    row.settings, row.secrets = dict(connection.settings), dict(connection.secrets)
    row.full_clean(exclude=["secrets", "settings", "capabilities", "tenant"])
    row.save(update_fields=["name", "settings", "secrets"])
    record(
        actor=actor,
        action="backend.update",
        target=row.name,
        tenant_id=row.tenant_id,
        details={
            "changed": changed,
            "identity": identity,
            "fingerprint": {"before": before, "after": row.fingerprint},
            "unverifiable": unverifiable,
        },
    )
    return row


def _require_unused(backend: Backend) -> None:
    spaces = list(Space.objects.filter(backend=backend).values_list("name", flat=True))
    if spaces:
        raise BackendInUse(
            f"The spaces {', '.join(spaces)} run on “{backend.name}”; move or delete them first.",
            spaces,
        )
    gone = [ReleaseState.DELETED, ReleaseState.BROKEN]
    kept = Release.objects.filter(backend=backend).exclude(state__in=gone).select_related("space")
    names = [f"{release.space} {release.generation}" for release in kept]
    if names:
        raise BackendInUse(
            f"Releases live on “{backend.name}”: {', '.join(names[:10])}; delete them first.", names
        )


@transaction.atomic
def _delete(backend: Backend, actor: Actor, unverifiable: str) -> None:
    row = Backend.objects.select_for_update().get(pk=backend.pk)
    _require_unused(row)
    # History goes on without it: these sessions' spaces have moved, these releases have no snapshot.
    for session in Session.objects.filter(backend=row).select_related("space"):
        session.backend_id = session.space.backend_id
        session.save(update_fields=["backend"])
    Release.objects.filter(backend=row).delete()
    record(
        actor=actor,
        action="backend.delete",
        target=row.name,
        tenant_id=row.tenant_id,
        details={"unverifiable": unverifiable},
    )
    row.delete()
