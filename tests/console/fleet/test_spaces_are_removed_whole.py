"""Deleting a space: what it asks, what goes, what stays, and what a crash in between leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from redis import Redis as BlockingRedis

from console.audit.models import AuditEntry
from console.audit.services import SYSTEM
from console.fleet import removal, sessions, tasks
from console.fleet.models import ReconcileReport, Session
from console.fleet.reconcile import reconcile
from console.fleet.removal import RemovalUnconfirmed, remove, request_removal
from console.fleet.runtime import Runtime
from console.fleet.services import create_space
from console.gateway.models import GatewaySnapshot
from console.tenants.models import ApiKey, Space, SpaceGoing
from sandboxes.errors import Conflict, NotFound, Unavailable
from sandboxes.network import NetworkPolicy
from sandboxes.testing.simulated import SimulatedProvider
from sandboxes.types import CreateRequest, TimeoutPolicy
from skills.models import Build, BuildState, Release, ReleaseState
from tests.console.fleet.loop import ALICE, in_loop, resolve
from tests.console.fleet.test_attachments import chunks, stored

ask = sync_to_async(request_removal)


@pytest.fixture(autouse=True)
def unsent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The spaces whose removal a worker would be asked for."""
    found: list[str] = []
    monkeypatch.setattr(tasks.remove_space, "delay", found.append)
    return found


async def freeze(space: Space, account: SimulatedProvider, generation: int = 1) -> Release:
    """A release of the space, with its snapshot."""
    async with account.client() as client:
        sandbox = account.start(_request(space))
        assert client.snapshots is not None
        snapshot = await client.snapshots.create(sandbox.id, name=f"plan-{space.pk}-{generation}")
        await client.delete(sandbox.id)
    return await Release.objects.acreate(
        space=space,
        generation=generation,
        backend=space.backend,
        fingerprint=space.backend.fingerprint,
        state=ReleaseState.ACTIVE,
        planned_name=f"plan-{space.pk}-{generation}",
        snapshot_id=snapshot.id,
    )


def _request(space: Space, **tags: str) -> CreateRequest:
    return CreateRequest(
        template="base",
        network=NetworkPolicy(outbound=True, inbound=False),
        timeout=TimeoutPolicy(timeout_s=3600),
        metadata={"skillyard_tenant": space.tenant_id, "skillyard_space": space.pk, **tags},
    )


async def go_on(space: Space) -> bool:
    async with Runtime() as runtime:
        return await remove(runtime=runtime, space_id=space.pk)


async def neighbour(space: Space) -> Space:
    made = await sync_to_async(create_space)(
        tenant=space.tenant, name="Next", slug="next", backend=space.backend, actor=SYSTEM
    )
    return await Space.objects.select_related("backend", "tenant").aget(pk=made.pk)


@in_loop
async def test_it_is_asked_for_by_name_and_tells_what_goes(
    space: Space, account: SimulatedProvider, unsent: list[str]
) -> None:
    async with Runtime() as runtime:
        await resolve(runtime, space)
        await resolve(runtime, space, "other")
    await freeze(space, account)
    for confirm in ("", "Lab", "next"):
        with pytest.raises(RemovalUnconfirmed) as refused:
            await ask(space=space, actor=ALICE, confirm=confirm)
        going = refused.value.consequences
        assert (going.live_sessions, going.sessions, going.releases) == (2, 2, 1)
    await space.arefresh_from_db()
    assert space.delete_requested_at is None
    assert (len(account.live()), unsent) == (2, [])


@in_loop
async def test_everything_of_it_goes_and_nothing_else(
    space: Space, account: SimulatedProvider, redis: BlockingRedis, media: Path
) -> None:
    other = await neighbour(space)
    async with Runtime() as runtime:
        live = await resolve(runtime, space)
        kept = await resolve(runtime, other)
        await sessions.stage(
            runtime=runtime,
            space=space,
            session_id="talk",
            name="a",
            data=chunks(b"x"),
            actor=ALICE,
        )
    release, others_release = await freeze(space, account), await freeze(other, account)
    space.current_release = release
    await space.asave()
    account.start(_request(space, skillyard_build="bld_gone"))
    async with account.client() as client:
        assert client.snapshots is not None
        mine = await client.snapshots.create(live.sandbox.id, name="by-a-client")
    await GatewaySnapshot.objects.acreate(
        space=space,
        backend=space.backend,
        snapshot_id=mine.id,
        source_sandbox_id=live.sandbox.id,
    )
    key = await ApiKey.objects.acreate(
        tenant=space.tenant, space=space, name="k", prefix="sky_x", secret_sha256="0" * 64
    )

    await ask(space=space, actor=ALICE, confirm="lab")
    await key.arefresh_from_db()
    assert key.revoked_at is not None
    assert await go_on(space)

    assert [sandbox.id for sandbox in account.live()] == [kept.sandbox.id]
    assert set(account.snapshots) == {others_release.snapshot_id}
    assert not await Space.objects.filter(pk=space.pk).aexists()
    assert await Session.objects.acount() == 1
    assert stored(media) == []
    assert not any(space.pk.encode() in name for name in redis.keys("*:binding"))
    told = AuditEntry.objects.filter(action__startswith="space.delete").order_by("id")
    assert [(row.action, row.actor) async for row in told] == [
        ("space.delete", "alice"),
        ("space.deleted", "alice"),
    ]
    assert await go_on(space), "it is gone, whoever asks again"


@in_loop
async def test_an_empty_space_needs_no_name(space: Space, account: SimulatedProvider) -> None:
    await ask(space=space, actor=ALICE)
    assert await go_on(space)


@in_loop
async def test_nothing_new_happens_in_a_space_that_goes(
    space: Space, account: SimulatedProvider
) -> None:
    async with Runtime() as runtime:
        await ask(space=space, actor=ALICE)
        with pytest.raises(SpaceGoing):
            await resolve(runtime, space)
        assert await remove(runtime=runtime, space_id=space.pk)
        with pytest.raises(NotFound):
            await resolve(runtime, space)
    assert account.live() == []


@pytest.mark.parametrize("op", ["delete", "list", "snapshots.delete", "snapshots.list"])
@in_loop
async def test_a_provider_that_fails_in_between_costs_nothing_but_time(
    space: Space, account: SimulatedProvider, op: str
) -> None:
    async with Runtime() as runtime:
        await resolve(runtime, space)
    await freeze(space, account)
    await ask(space=space, actor=ALICE, confirm="lab")
    account.fail_next(op, Unavailable("The provider is away; wait for it."))

    assert not await go_on(space)
    await space.arefresh_from_db()
    assert space.delete_problem == "The provider is away; wait for it."
    assert await go_on(space)
    assert (account.live(), account.snapshots) == ([], {})


@pytest.mark.parametrize("dies_in", ["_end_sessions", "_delete_snapshots", "_delete_leftovers"])
@in_loop
async def test_a_worker_that_dies_is_followed_by_the_beat(
    space: Space, account: SimulatedProvider, monkeypatch: pytest.MonkeyPatch, dies_in: str
) -> None:
    async with Runtime() as runtime:
        await resolve(runtime, space)
    await freeze(space, account)
    await ask(space=space, actor=ALICE, confirm="lab")

    async def die(*_: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(removal._Removal, dies_in, die)
        with pytest.raises(SystemExit):
            await go_on(space)
    assert await sync_to_async(removal.pending)() == [space.pk]
    assert await go_on(space)
    assert (account.live(), account.snapshots) == ([], {})


@in_loop
async def test_a_snapshot_still_in_use_is_waited_for(
    space: Space, account: SimulatedProvider
) -> None:
    release = await freeze(space, account)
    await ask(space=space, actor=ALICE, confirm="lab")
    account.fail_next("snapshots.delete", Conflict("A sandbox stands on it."))

    assert not await go_on(space)
    await space.arefresh_from_db()
    assert str(release) in space.delete_problem
    assert await go_on(space)


@in_loop
async def test_a_running_build_is_cancelled_and_waited_for(
    space: Space, account: SimulatedProvider
) -> None:
    build = await Build.objects.acreate(space=space, state=BuildState.RUNNING)
    await ask(space=space, actor=ALICE, confirm="lab")
    await build.arefresh_from_db()
    assert build.cancel_requested_at is not None

    assert not await go_on(space)
    await Build.objects.filter(pk=build.pk).aupdate(state=BuildState.CANCELLED)
    assert await go_on(space)


@in_loop
async def test_snapshots_in_another_account_are_left_only_if_agreed_to(
    space: Space, account: SimulatedProvider
) -> None:
    release = await freeze(space, account)
    await Release.objects.filter(pk=release.pk).aupdate(fingerprint="of another account")
    with pytest.raises(RemovalUnconfirmed, match="restore its credentials"):
        await ask(space=space, actor=ALICE, confirm="lab")

    await ask(space=space, actor=ALICE, confirm="lab", leave_snapshots=True)
    assert await go_on(space)
    left = await AuditEntry.objects.aget(action="release.leave")
    assert left.details["snapshot"] == release.snapshot_id


@in_loop
async def test_what_a_vanished_space_left_is_deleted_by_the_reconciler(
    space: Space, account: SimulatedProvider, redis: BlockingRedis, settings: Any
) -> None:
    other = await neighbour(space)
    async with Runtime() as runtime:
        left = await resolve(runtime, space)
        kept = await resolve(runtime, other)
    await Space.objects.filter(pk=space.pk).adelete()

    async def compare() -> ReconcileReport:
        async with Runtime() as runtime:
            report = await reconcile(
                runtime=runtime, backend=space.backend, dry_run=False, actor=SYSTEM
            )
        assert report is not None
        return report

    young = await compare()
    assert [(row["kind"], row["action"]) for row in young.findings] == [("young", "kept")]
    settings.SKILLYARD_ORPHAN_GRACE_S = 0.0
    done = await compare()
    (finding,) = done.findings
    assert (finding["sandbox_id"], finding["action"]) == (left.sandbox.id, "deleted")
    assert (done.deleted, done.bound, done.aborted) == (1, 1, "")
    assert [sandbox.id for sandbox in account.live()] == [kept.sandbox.id]
    assert len(redis.keys("*:binding")) == 1
