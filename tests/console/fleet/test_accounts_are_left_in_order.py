"""New credentials: the same account is proven and keeps serving, another one is left with nothing of ours in it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.management import call_command
from django.db import connection as database
from django.utils import timezone

from console.audit.models import AuditEntry
from console.audit.services import SYSTEM
from console.fleet import accounts, backends, tasks
from console.fleet.changes import preview_change, silent_releases
from console.fleet.connection import read
from console.fleet.models import Backend, FormerAccount, SessionState
from console.fleet.runtime import Runtime
from console.tenants.models import Space
from sandboxes.errors import Authentication, Unavailable
from sandboxes.network import CLOSED
from sandboxes.testing.simulated import SimulatedClient, SimulatedProvider
from sandboxes.types import CreateRequest, TimeoutPolicy
from skills import reaper
from skills.models import Release, ReleaseState
from tests.console.fleet import memory_backend
from tests.console.fleet.loop import history, resolve, row_of

pytestmark = pytest.mark.django_db(transaction=True)

OLD_KEY, NEW_KEY = "old-key-s3cret", "new-key-s3cret"


class World:
    def __init__(self, space: Space) -> None:
        self.space = space
        Backend.objects.filter(pk=space.backend_id).update(secrets={"api_key": OLD_KEY})
        self.before = self.backend.fingerprint

    @property
    def backend(self) -> Backend:
        return Backend.objects.get(pk=self.space.backend_id)

    @property
    def former(self) -> FormerAccount:
        return FormerAccount.objects.get()

    def connection(self, **values: Any) -> Any:
        values = {"account": "one", "api_key": NEW_KEY, **values}
        return read(memory_backend.PROVIDER, values, stored=self.backend)

    def rotate(self, *, force: bool = False, end: bool = False, **values: Any) -> Backend:
        return async_to_sync(backends.edit_backend)(
            backend=self.backend,
            name="Here",
            connection=self.connection(**values),
            actor=SYSTEM,
            force=force,
            end_sandboxes=end,
        )

    def talk(self, session_id: str = "talk") -> str:
        async def go() -> str:
            async with Runtime() as runtime:
                space = await Space.objects.select_related("backend").aget(pk=self.space.pk)
                return (await resolve(runtime, space, session_id)).sandbox.id

        return async_to_sync(go)()

    def release(self, account: SimulatedProvider, sandbox: str, **values: Any) -> Release:
        backend = self.backend

        async def take() -> str:
            async with await backend.open_client() as client:
                assert client.snapshots is not None
                return (await client.snapshots.create(sandbox, name="planned-1")).id

        row = Release.objects.create(
            space=self.space,
            generation=1,
            backend=self.backend,
            fingerprint=self.backend.fingerprint,
            planned_name="planned-1",
            snapshot_id=async_to_sync(take)(),
            **{"state": ReleaseState.ACTIVE, "activated_at": timezone.now(), **values},
        )
        Space.objects.filter(pk=self.space.pk).update(current_release=row)
        return row

    def clean(self) -> bool:
        return async_to_sync(accounts.clean)(self.former.pk)


@pytest.fixture
def world(space: Space, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(tasks.clean_account, "delay", lambda pk: None)
    return World(space)


# The same account


def test_a_new_key_that_finds_our_snapshot_silences_nothing(
    world: World, account: SimulatedProvider
) -> None:
    box = world.talk()
    row = world.release(account, box)
    proof = async_to_sync(accounts.prove_same_account)(
        backend=world.backend, connection=world.connection()
    )
    assert proof.same
    assert "find the snapshot" in proof.reason
    change = preview_change(world.backend, world.connection(), proof)
    assert (change.moves_account, change.silent) == (False, [])
    after = world.rotate()
    assert after.fingerprint != world.before
    row.refresh_from_db()
    assert row.usable_on(after)
    assert silent_releases(after) == []
    assert box in account.sandboxes, "what lives there lives on"
    assert world.talk() == box
    assert not FormerAccount.objects.exists()
    entry = AuditEntry.objects.filter(action="backend.update").latest("pk")
    assert entry.details["same_account"]["proven"] is True
    assert entry.details["handed_over"] == 1
    assert NEW_KEY not in str(entry.details)


def test_a_session_of_ours_proves_it_as_well(world: World, account: SimulatedProvider) -> None:
    box = world.talk()
    assert world.rotate().fingerprint != world.before
    assert world.talk() == box


def test_the_providers_own_word_is_taken_first(world: World, account: SimulatedProvider) -> None:
    memory_backend.TOLD_IDS.update(one="acc-1", two="acc-1", three="acc-3")
    prove = async_to_sync(accounts.prove_same_account)
    for name, same in (("two", True), ("three", False)):
        proof = prove(backend=world.backend, connection=world.connection(account=name))
        assert proof.same is same
        assert "provider says" in proof.reason


def test_what_cannot_be_told_is_said(world: World) -> None:
    prove = async_to_sync(accounts.prove_same_account)
    proof = prove(backend=world.backend, connection=world.connection())
    assert (proof.same, "no snapshot or sandbox" in proof.reason) == (None, True)
    memory_backend.REVOKED.add(NEW_KEY)
    proof = prove(backend=world.backend, connection=world.connection())
    assert (proof.same, "not taken" in proof.reason) == (None, True)


@pytest.mark.sandbox
def test_sandboxd_is_the_same_whatever_address_leads_there(
    real_space: Space, tmp_path: Path
) -> None:
    backend = real_space.backend
    link = tmp_path / "other.sock"
    link.symlink_to(backend.settings["socket"])
    connection = read("local", {"socket": str(link)}, stored=backend)
    assert connection.fingerprint != backend.fingerprint
    proof = async_to_sync(accounts.prove_same_account)(backend=backend, connection=connection)
    assert proof == accounts.Proof(
        same=True, reason="The provider says that it is the same account."
    )


# Another account


def test_what_lives_in_the_old_account_is_ended_with_the_old_key(
    world: World, account: SimulatedProvider
) -> None:
    box = world.talk()
    world.release(account, box)
    with pytest.raises(backends.SandboxesStillLive):
        world.rotate(account="two")
    assert box in account.sandboxes
    world.rotate(account="two", end=True)
    assert account.sandboxes == {}
    row = async_to_sync(row_of)(world.space)
    assert row.state == SessionState.LOST
    assert async_to_sync(history)(world.space)[-1] == ("destroyed", "account_left")
    fresh = world.talk()
    assert fresh in memory_backend.account("two").sandboxes


def test_old_credentials_stay_until_the_snapshots_are_gone_and_are_erased_then(
    world: World, account: SimulatedProvider
) -> None:
    box = world.talk()
    row = world.release(account, box)
    after = world.rotate(account="two", end=True)
    assert [item.pk for item in silent_releases(after)] == [row.pk]
    former = world.former
    assert (former.secrets, former.fingerprint) == ({"api_key": OLD_KEY}, world.before)
    assert OLD_KEY not in _stored("fleet_formeraccount")
    assert not world.clean(), "the release serves still"
    assert row.snapshot_id in account.snapshots
    # A rebuild has taken its place, long ago.
    Space.objects.update(current_release=None)
    Release.objects.filter(pk=row.pk).update(
        state=ReleaseState.SUPERSEDED, superseded_at=timezone.now() - timedelta(days=30)
    )
    assert world.clean()
    assert account.snapshots == {}
    row.refresh_from_db()
    assert row.state == ReleaseState.DELETED
    former = world.former
    assert former.finished_at is not None
    assert (former.secrets, former.settings) == ({}, {})
    assert AuditEntry.objects.get(action="backend.leave_account").details["how"] == "cleaned up"
    assert world.clean(), "again does nothing"


def test_the_beat_hands_open_accounts_to_workers(
    world: World, account: SimulatedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.release(account, world.talk())
    world.rotate(account="two", end=True)
    handed: list[tuple[str]] = []
    monkeypatch.setattr(
        tasks.clean_account, "apply_async", lambda args, **options: handed.append(args)
    )
    tasks.clean_accounts()
    assert handed == [(world.former.pk,)]
    tasks.clean_account(world.former.pk)
    assert world.former.looked_at is not None
    accounts.forget(former=world.former, actor=SYSTEM)
    tasks.clean_accounts()
    assert len(handed) == 1


def test_a_deleted_release_of_the_old_account_is_deleted_there(
    world: World, account: SimulatedProvider
) -> None:
    row = world.release(account, world.talk(), state=ReleaseState.SUPERSEDED)
    Space.objects.update(current_release=None)
    world.rotate(account="two", end=True)
    Release.objects.update(delete_requested_at=timezone.now())
    assert async_to_sync(reaper.delete_snapshot)(row.pk)
    assert account.snapshots == {}


def test_what_the_old_key_could_not_delete_is_tried_again(
    world: World, account: SimulatedProvider
) -> None:
    box = world.talk()
    account.fail_next("delete", Unavailable("It is down."))
    with pytest.raises(backends.SandboxesStillLive):
        world.rotate(account="two", end=True)
    account.fail_next("delete", Unavailable("It is down."))
    world.rotate(account="two", end=True, force=True)
    assert world.former.sandbox_ids == [box]
    account.fail_next("delete", Unavailable("It is down."))
    assert not world.clean()
    assert world.former.problem == "It is down."
    assert world.clean()
    assert account.sandboxes == {}


def test_no_session_stays_bound_to_an_account_that_could_not_be_emptied(
    world: World, account: SimulatedProvider
) -> None:
    box = world.talk()
    memory_backend.REVOKED.add(OLD_KEY)
    world.rotate(account="two", force=True)
    assert async_to_sync(history)(world.space)[-1] == ("unbound", "account_left")
    assert async_to_sync(row_of)(world.space).state == SessionState.LOST

    # As a provider may say of another account's sandbox: it would keep a binding for ever.
    async def forbidden(op: str, phase: str, sandbox_id: str) -> None:
        if sandbox_id == box:
            raise Authentication("That is another team's.")

    memory_backend.account("two").intercept = forbidden
    assert world.talk() in memory_backend.account("two").sandboxes
    assert box in account.sandboxes
    memory_backend.REVOKED.clear()
    assert world.clean()
    assert account.sandboxes == {}


def test_a_revoked_key_is_told_and_can_be_given_up(
    world: World, account: SimulatedProvider
) -> None:
    row = world.release(account, world.talk())
    memory_backend.REVOKED.add(OLD_KEY)
    with pytest.raises(backends.InventoryUnverifiable):
        world.rotate(account="two")
    world.rotate(account="two", force=True)
    assert not world.clean()
    assert "not taken any more" in world.former.problem
    old = world.backend
    Space.objects.update(backend=_spare(world))
    Release.objects.update(state=ReleaseState.BROKEN)
    with pytest.raises(backends.BackendInUse, match="left at an account"):
        async_to_sync(backends.delete_backend)(backend=old, actor=SYSTEM, force=True)
    accounts.forget(former=world.former, actor=SYSTEM)
    assert world.former.secrets == {}
    details = AuditEntry.objects.get(action="backend.leave_account").details
    assert details["how"] == "given up"
    assert details["releases_left"] == [f"{world.space} {row.generation}"]


def test_going_back_makes_it_the_account_again(world: World, account: SimulatedProvider) -> None:
    row = world.release(account, world.talk())
    world.rotate(account="two", end=True)
    back = world.rotate(account="one", api_key=OLD_KEY)
    assert back.fingerprint == world.before
    row.refresh_from_db()
    assert row.usable_on(back)
    assert not FormerAccount.objects.filter(fingerprint=world.before).exists()


def test_where_nothing_is_left_no_credentials_are_kept(
    world: World, account: SimulatedProvider
) -> None:
    world.rotate(account="two")
    assert not FormerAccount.objects.exists()


def test_other_sandboxes_of_the_old_account_are_left_alone(
    world: World, account: SimulatedProvider
) -> None:
    world.release(account, world.talk())
    world.rotate(account="two", end=True)
    stranger = _box(account, {"skillyard_tenant": world.space.tenant_id, "skillyard_backend": "x"})
    ours = _box(
        account,
        {"skillyard_tenant": world.space.tenant_id, "skillyard_backend": world.backend.pk},
    )
    world.clean()
    assert stranger in account.sandboxes
    assert ours not in account.sandboxes


def test_keys_are_rotated_in_former_accounts_too(
    world: World, account: SimulatedProvider, redis: object
) -> None:
    world.release(account, world.talk())
    world.rotate(account="two", end=True)
    stored = _stored("fleet_formeraccount")
    call_command("rotate_field_keys")
    assert _stored("fleet_formeraccount") != stored
    assert world.former.secrets == {"api_key": OLD_KEY}


def _stored(table: str) -> str:
    with database.cursor() as cursor:
        cursor.execute(f"SELECT secrets FROM {table}")  # noqa: S608 - a name of ours
        return str(cursor.fetchall())


def _spare(world: World) -> Backend:
    return Backend.objects.create(
        tenant=world.backend.tenant, name="Spare", provider="memory", settings={"account": "x"}
    )


def _box(account: SimulatedProvider, tags: dict[str, str]) -> str:
    request = CreateRequest(
        template="base", network=CLOSED, timeout=TimeoutPolicy(timeout_s=600), metadata=tags
    )
    return async_to_sync(SimulatedClient(account).create)(request).id
