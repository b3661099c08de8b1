"""Which provider account a backend points at, and what becomes of the one that it leaves.

New credentials may open the same account: that is proven, never taken on trust, and then nothing falls silent.
Where they open another one, the old credentials are kept, encrypted, until what is ours there is gone; then
they are erased.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass

from asgiref.sync import sync_to_async
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from console.audit.services import SYSTEM, Actor, record
from console.fleet.connection import Connection
from console.fleet.inventory import Inventory, LiveSandbox
from console.fleet.models import Backend, FormerAccount, Session, SessionState, Verification
from console.fleet.runtime import Runtime
from console.tenants.models import Space
from sandboxes import registry
from sandboxes.client import SandboxClient
from sandboxes.errors import SandboxError
from sandboxes.sessions import SessionKey, Why
from sandboxes.sessions.binding import BindingDamaged
from sandboxes.sessions.keys import TAG_BACKEND, TAG_TENANT
from sandboxes.types import ListFilter, SandboxState
from skills.models import Build, Release, ReleaseState
from skills.reaper import prune

__all__ = [
    "Proof",
    "clean",
    "end_sandboxes",
    "forget",
    "forget_bindings",
    "hand_over",
    "leave",
    "left_there",
    "open_accounts",
    "prove_same_account",
]

log = logging.getLogger(__name__)

_LOCK_WAIT_S = 30.0
_LOOKED_AT = 20
"""Sandboxes that are asked for by id, at most, to tell an account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Whether new credentials open the account of now. `same` None: it can't be told. `reason` is a sentence."""

    same: bool | None
    reason: str


async def prove_same_account(*, backend: Backend, connection: Connection) -> Proof:
    """By the provider's own word, else by what of ours the new credentials find. Changes nothing, raises
    nothing of the provider's trouble."""
    try:
        client = await registry.open_client(connection.provider, connection.values)
    except SandboxError as error:
        return Proof(same=None, reason=error.message)
    async with client:
        try:
            found = await _by_id(backend, client) or await _by_snapshots(backend, client)
            return found or await _by_sandboxes(backend, client)
        except SandboxError as error:
            return Proof(same=None, reason=error.message)


async def _by_id(backend: Backend, client: SandboxClient) -> Proof | None:
    if client.account_id is None:
        return None
    try:
        async with await backend.open_client() as old:
            known = old.account_id
    except SandboxError:
        return None
    if known is None:
        return None
    if known == client.account_id:
        return Proof(same=True, reason="The provider says that it is the same account.")
    return Proof(same=False, reason="The provider says that it is another account.")


async def _by_snapshots(backend: Backend, client: SandboxClient) -> Proof | None:
    if client.snapshots is None:
        return None
    releases = Release.objects.kept().filter(backend=backend, fingerprint=backend.fingerprint)
    ledger = {
        row.snapshot_id: row
        async for row in releases.exclude(snapshot_id="").select_related("space")
    }
    if not ledger:
        return None
    async for snapshot in client.snapshots.list():
        row = ledger.get(snapshot.id)
        if row is not None:
            return Proof(
                same=True,
                reason=f"The new credentials find the snapshot of {row.space} {row.generation}.",
            )
    return Proof(
        same=False, reason=f"The new credentials find none of our {len(ledger)} snapshots."
    )


async def _by_sandboxes(backend: Backend, client: SandboxClient) -> Proof:
    live = Session.objects.filter(
        backend=backend, state__in=[SessionState.ACTIVE, SessionState.PAUSED]
    ).exclude(sandbox_id="")
    async for sandbox_id in live.values_list("sandbox_id", flat=True)[:_LOOKED_AT]:
        try:
            await client.get(sandbox_id)
        except SandboxError as error:
            if error.gone:
                continue
            raise
        return Proof(same=True, reason=f"The new credentials find our sandbox {sandbox_id}.")
    return Proof(
        same=None, reason="There is no snapshot or sandbox of ours by which it could be told."
    )


async def end_sandboxes(
    *, backend: Backend, inventory: Inventory, actor: Actor
) -> tuple[list[str], str]:
    """Delete what lives at the account of now. A session that had one of them gets a new sandbox at its next
    call. Returns the ids of those that could not be deleted, and why."""
    left: list[str] = []
    problem = ""
    async with Runtime() as runtime:
        client = await runtime.client(backend)
        for item in inventory.live:
            try:
                await _end(runtime, client, backend, item, actor)
            except SandboxError as error:
                if not error.gone:
                    left.append(item.sandbox_id)
                    problem = error.message
    return left, problem


async def forget_bindings(*, backend: Backend, actor: Actor) -> int:
    """Of an account that can't be emptied before it is left: no session may go on asking the new one for a
    sandbox of the old, which may answer that this is forbidden, again and again. Returns how many."""
    count = 0
    spaces = [
        key async for key in Space.objects.filter(backend=backend).values_list("pk", flat=True)
    ]
    async with Runtime() as runtime:
        for space in spaces:
            async for key in runtime.sessions.bound_sessions(tenant=backend.tenant_id, space=space):
                count += await runtime.sessions.forget(
                    key=key,
                    backend=backend.pk,
                    why=Why.ACCOUNT_LEFT,
                    actor=actor.name,
                    wait_s=_LOCK_WAIT_S,
                )
    return count


async def _end(
    runtime: Runtime, client: SandboxClient, backend: Backend, item: LiveSandbox, actor: Actor
) -> None:
    if item.session and item.space:
        key = SessionKey(backend.tenant_id, item.space, item.session)
        with suppress(BindingDamaged):
            binding = (await runtime.sessions.state(key=key)).binding(key)
            if binding is not None and binding.sandbox_id == item.sandbox_id:
                await runtime.sessions.destroy(
                    key=key,
                    client=client,
                    backend=backend.pk,
                    why=Why.ACCOUNT_LEFT,
                    actor=actor.name,
                    wait_s=_LOCK_WAIT_S,
                )
                return
    await client.delete(item.sandbox_id)


# Within the transaction of an edit


def hand_over(backend: Backend, before: str, after: str) -> int:
    """The account stayed, though its fingerprint changed: what is known to lie in it, lies in it still. How
    many releases that are."""
    if before == after:
        return 0
    for model in (Build, Verification):
        owned = Q(space__backend=backend) if model is Build else Q(backend=backend)
        model.objects.filter(owned, fingerprint=before).update(fingerprint=after)
    return Release.objects.filter(backend=backend, fingerprint=before).update(fingerprint=after)


def leave(
    backend: Backend, old: Connection, *, left_behind: list[str], unverifiable: str
) -> FormerAccount | None:
    """Note the account that `backend` has just left, if something of ours is or may be there. `left_behind`
    are ids of sandboxes that could not be deleted. An account that it comes back to is no former one."""
    FormerAccount.objects.filter(backend=backend, fingerprint=backend.fingerprint).delete()
    if old.fingerprint == backend.fingerprint:
        return None
    if not (left_behind or unverifiable or left_there(backend, old.fingerprint).exists()):
        return None
    from console.fleet.tasks import clean_account

    former, _ = FormerAccount.objects.update_or_create(
        backend=backend,
        fingerprint=old.fingerprint,
        defaults={
            "provider": old.provider,
            "settings": dict(old.settings),
            "secrets": dict(old.secrets),
            "sandbox_ids": left_behind,
            "problem": unverifiable[:500],
            "finished_at": None,
        },
    )
    # Without a broker it waits for the beat.
    transaction.on_commit(lambda: clean_account.delay(former.pk), robust=True)
    return former


def left_there(backend: Backend, fingerprint: str) -> QuerySet[Release]:
    """Releases whose snapshots lie in an account, or may do."""
    has_snapshot = ~Q(snapshot_id="") | Q(state=ReleaseState.BUILDING)
    return Release.objects.filter(has_snapshot, backend=backend, fingerprint=fingerprint).exclude(
        state=ReleaseState.DELETED
    )


# Cleaning up


def open_accounts() -> list[str]:
    """Former accounts that still hold credentials."""
    return list(FormerAccount.objects.filter(finished_at=None).values_list("pk", flat=True))


async def clean(former_id: str) -> bool:
    """Delete what is ours at a former account, as far as it is not needed; erase its credentials once nothing
    is left. True then. The row says what is waited for. Idempotent."""
    rows = FormerAccount.objects.select_related("backend")
    row = await rows.filter(pk=former_id, finished_at=None).afirst()
    if row is None:
        return True
    problem = ""
    try:
        async with await row.open_client() as client:
            await _delete_sandboxes(row, client)
        await prune(row.backend, fingerprint=row.fingerprint)
    except SandboxError as error:
        problem = error.message
    waiting = await left_there(row.backend, row.fingerprint).acount()
    if not problem and not waiting:
        await sync_to_async(_finish)(row, SYSTEM, "")
        return True
    row.problem, row.looked_at = problem[:500], timezone.now()
    await row.asave(update_fields=["problem", "looked_at", "sandbox_ids"])
    return False


async def _delete_sandboxes(row: FormerAccount, client: SandboxClient) -> None:
    """Those with this backend's tags, and those that were known to be left. Looked at again: a provider that
    ignores the filter must not cost another backend anything."""
    tags = {TAG_TENANT: row.backend.tenant_id, TAG_BACKEND: row.backend_id}
    doomed = list(row.sandbox_ids)
    async for info in client.list(ListFilter(metadata=tags)):
        ours = all(info.metadata.get(tag) == value for tag, value in tags.items())
        if ours and info.id not in doomed and info.state is not SandboxState.TERMINAL:
            doomed.append(info.id)
    for sandbox_id in doomed:
        try:
            await client.delete(sandbox_id)
        except SandboxError as error:
            if not error.gone:
                raise
        log.info("sandbox %s of a former account of %s is deleted", sandbox_id, row.backend.name)
    row.sandbox_ids = []


def forget(*, former: FormerAccount, actor: Actor) -> FormerAccount:
    """Give up what is left there, and erase the credentials: what lives there is nobody's then."""
    return _finish(former, actor, "given up")


@transaction.atomic
def _finish(former: FormerAccount, actor: Actor, how: str) -> FormerAccount:
    row = FormerAccount.objects.select_for_update().select_related("backend").get(pk=former.pk)
    if row.finished_at is not None:
        return row
    left = left_there(row.backend, row.fingerprint)
    record(
        actor=actor,
        action="backend.leave_account",
        target=row.backend.name,
        tenant_id=row.backend.tenant_id,
        details={
            "fingerprint": row.fingerprint,
            "how": how or "cleaned up",
            "releases_left": [f"{item.space} {item.generation}" for item in left],
            "problem": row.problem,
        },
    )
    row.settings, row.secrets, row.sandbox_ids = {}, {}, []
    row.problem, row.finished_at = how, timezone.now()
    row.save(update_fields=["settings", "secrets", "sandbox_ids", "problem", "finished_at"])
    return row
