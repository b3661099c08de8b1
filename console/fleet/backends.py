"""Use cases of backends: add, edit, point at another account, cordon, delete.

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
from console.fleet import accounts
from console.fleet.changes import Change, preview_change, silent_releases
from console.fleet.connection import Connection, check_urls, fields_of, masked, read
from console.fleet.inventory import Inventory, take_inventory
from console.fleet.models import Backend, Session
from console.fleet.services import create_backend
from console.tenants.models import Space, Tenant
from sandboxes import registry
from sandboxes.errors import Authentication, Conflict, InvalidRequest, SandboxError
from skills.models import Build, BuildState, Release, ReleaseState

__all__ = [
    "BackendCordoned",
    "BackendInUse",
    "Change",
    "InventoryUnverifiable",
    "SandboxesStillLive",
    "add_backend",
    "cordon_backend",
    "delete_backend",
    "edit_backend",
    "preview_change",
    "rotate_credentials",
    "silent_releases",
    "uncordon_backend",
]

_CORDON = timedelta(minutes=2)


class BackendCordoned(Conflict):
    """Somebody else is changing it just now."""


class BackendInUse(Conflict):
    """Spaces or releases need it. `names` says which."""

    retryable = False

    def __init__(self, message: str, names: list[str]) -> None:
        super().__init__(message, op="backend", status=409)
        self.names = names


class SandboxesStillLive(Conflict):
    """Sandboxes live at the account that it points to. `inventory` lists them."""

    retryable = False

    def __init__(self, message: str, inventory: Inventory) -> None:
        super().__init__(message, op="backend", status=409)
        self.inventory = inventory


class InventoryUnverifiable(SandboxesStillLive):
    """The provider couldn't be asked what lives there; may be forced."""


async def add_backend(
    *, tenant: Tenant, name: str, provider: str, values: Mapping[str, Any], actor: Actor
) -> Backend:
    """InvalidRequest names what is wrong with the name or a setting."""
    connection = read(provider, values)
    await check_urls(connection)
    return await sync_to_async(create_backend)(
        tenant=tenant, name=name, provider=provider, values=connection.values, actor=actor
    )


async def edit_backend(
    *,
    backend: Backend,
    name: str,
    connection: Connection,
    actor: Actor,
    force: bool = False,
    end_sandboxes: bool = False,
) -> Backend:
    """Save a name and a connection. Credentials that are proven to open the same account change nothing else.
    Otherwise what lives there must be gone first: `end_sandboxes` ends it with the old credentials, which are
    kept until nothing of ours is left there. `force` goes on where the old account can't be asked or refuses.

    Raises BackendCordoned while somebody else changes it, SandboxesStillLive or InventoryUnverifiable if its
    identity changes, InvalidRequest for a name that is taken or an address that is refused.
    """
    if connection.provider != backend.provider:
        raise InvalidRequest("The kind of a backend can't be changed; add another one.")
    await check_urls(connection)
    edit = _Edit(name=name, connection=connection, actor=actor)
    edit.identity = Connection.of(backend).identity_changes(connection)
    if not edit.identity:
        return await sync_to_async(_save)(backend, edit)
    async with _cordon(backend):
        await _require_no_build(backend, "be pointed elsewhere")
        edit.proof = await accounts.prove_same_account(backend=backend, connection=connection)
        if not edit.proof.same:
            await _empty(backend, edit, force=force, end_sandboxes=end_sandboxes)
        return await sync_to_async(_save)(backend, edit)


@dataclass(slots=True, kw_only=True)
class _Edit:
    """What is to be saved, and what was found out before."""

    name: str
    connection: Connection
    actor: Actor
    identity: list[str] = field(default_factory=list)
    proof: accounts.Proof | None = None
    unverifiable: str = ""
    left_behind: list[str] = field(default_factory=list)


async def _empty(backend: Backend, edit: _Edit, *, force: bool, end_sandboxes: bool) -> None:
    """Nothing of ours lives at the account of now, or it is known what does, and why."""
    if end_sandboxes:
        inventory = await take_inventory(backend)
        left, problem = await accounts.end_sandboxes(
            backend=backend, inventory=inventory, actor=edit.actor
        )
        if left and force:
            edit.left_behind, edit.unverifiable = left, problem
    if not edit.left_behind:
        edit.unverifiable = await _require_nothing_live(
            backend, force=force, what="be pointed elsewhere"
        )
    if edit.unverifiable:
        await accounts.forget_bindings(backend=backend, actor=edit.actor)


async def rotate_credentials(
    *,
    backend: Backend,
    secrets: Mapping[str, Any],
    actor: Actor,
    force: bool = False,
    end_sandboxes: bool = False,
) -> Backend:
    """Put new secrets in the place of the stored ones, after the provider took them. InvalidRequest, with
    nothing changed, if it refuses them; `force` also skips that where it does not answer. Else as
    `edit_backend`."""
    known = [field.name for field in fields_of(backend.provider) if field.secret]
    if not secrets or set(secrets) - set(known):
        raise InvalidRequest(
            f"Send at least one of this backend's secrets: {', '.join(known) or 'it has none'}."
        )
    connection = read(backend.provider, {**masked(backend), **secrets}, stored=backend)
    await check_urls(connection)
    try:
        client = await registry.open_client(connection.provider, connection.values)
        async with client:
            await client.health()
    except Authentication as error:
        raise InvalidRequest(
            f"The provider refuses the new credentials, so nothing was changed. {error.message}"
        ) from error
    except SandboxError:
        if not force:
            raise
    return await edit_backend(
        backend=backend,
        name=backend.name,
        connection=connection,
        actor=actor,
        force=force,
        end_sandboxes=end_sandboxes,
    )


@transaction.atomic
def cordon_backend(*, backend: Backend, actor: Actor, reason: str = "") -> Backend:
    """Keep new sandboxes off it until it is opened again; what runs on it runs on. Idempotent."""
    row = Backend.objects.select_for_update().get(pk=backend.pk)
    if row.cordoned_at is None or row.cordon_reason != reason:
        row.cordoned_at = row.cordoned_at or timezone.now()
        row.cordon_reason, row.cordoned_by = reason, actor.name
        row.save(update_fields=["cordoned_at", "cordon_reason", "cordoned_by"])
        _record_cordon(row, actor, "backend.cordon", reason)
    return row


@transaction.atomic
def uncordon_backend(*, backend: Backend, actor: Actor) -> Backend:
    """Let it start new sandboxes again. Idempotent."""
    row = Backend.objects.select_for_update().get(pk=backend.pk)
    if row.cordoned_at is not None:
        row.cordoned_at, row.cordon_reason, row.cordoned_by = None, "", ""
        row.save(update_fields=["cordoned_at", "cordon_reason", "cordoned_by"])
        _record_cordon(row, actor, "backend.uncordon", "")
    return row


def _record_cordon(row: Backend, actor: Actor, action: str, reason: str) -> None:
    record(
        actor=actor,
        action=action,
        target=row.name,
        tenant_id=row.tenant_id,
        details={"reason": reason},
    )


async def delete_backend(*, backend: Backend, actor: Actor, force: bool = False) -> None:
    """Raises BackendInUse while spaces or releases need it, else as `edit_backend` does."""
    await sync_to_async(_require_unused)(backend)
    await sync_to_async(_require_nothing_left)(backend)
    async with _cordon(backend):
        await _require_no_build(backend, "be deleted")
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


async def _require_no_build(backend: Backend, what: str) -> None:
    busy = Build.objects.filter(
        space__backend=backend, state__in=[BuildState.QUEUED, BuildState.RUNNING]
    )
    if await busy.aexists():
        raise Conflict(
            f"A build runs on “{backend.name}”, so it can't {what}; wait for it or cancel it.",
            op="backend",
        )


async def _require_nothing_live(backend: Backend, *, force: bool, what: str) -> str:
    """Why nothing is known, if that was forced; empty if nothing lives there."""
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
def _save(backend: Backend, edit: _Edit) -> Backend:
    row = Backend.objects.select_for_update().get(pk=backend.pk)
    if Backend.objects.filter(tenant=row.tenant_id, name=edit.name).exclude(pk=row.pk).exists():
        raise InvalidRequest(f"A backend called “{edit.name}” exists already; choose another name.")
    old, new = Connection.of(row), edit.connection
    changed = sorted(
        key for key in {*old.values, *new.values} if old.values.get(key) != new.values.get(key)
    )
    row.name = edit.name
    row.settings, row.secrets = dict(new.settings), dict(new.secrets)
    row.full_clean(exclude=["secrets", "settings", "capabilities", "tenant"])
    row.save(update_fields=["name", "settings", "secrets"])
    details: dict[str, Any] = {
        "changed": changed,
        "identity": edit.identity,
        "fingerprint": {"before": old.fingerprint, "after": row.fingerprint},
        "unverifiable": edit.unverifiable,
    }
    if edit.proof is not None:
        details["same_account"] = {"proven": edit.proof.same, "reason": edit.proof.reason}
        if edit.proof.same:
            details["handed_over"] = accounts.hand_over(row, old.fingerprint, row.fingerprint)
        else:
            former = accounts.leave(
                row, old, left_behind=edit.left_behind, unverifiable=edit.unverifiable
            )
            details["left_behind"] = edit.left_behind
            details["former_account"] = former.pk if former is not None else None
    record(
        actor=edit.actor,
        action="backend.update",
        target=row.name,
        tenant_id=row.tenant_id,
        details=details,
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


def _require_nothing_left(backend: Backend) -> None:
    left = backend.former_accounts.filter(finished_at=None)
    if left.exists():
        raise BackendInUse(
            f"Something of ours is left at an account that “{backend.name}” has left; wait until it is "
            "cleaned up, or give it up on the backend's page.",
            [former.fingerprint for former in left],
        )


@transaction.atomic
def _delete(backend: Backend, actor: Actor, unverifiable: str) -> None:
    row = Backend.objects.select_for_update().get(pk=backend.pk)
    _require_unused(row)
    _require_nothing_left(row)
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
