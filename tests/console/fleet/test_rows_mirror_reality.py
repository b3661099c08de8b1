"""What a session's row and history say after the backend did something by itself."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from redis import Redis as BlockingRedis

from console.audit.services import SYSTEM
from console.fleet import history as rows
from console.fleet import sessions
from console.fleet.models import Backend, ReconcileReport, Session, SessionState
from console.fleet.reconcile import reconcile
from console.fleet.runtime import Runtime
from console.tenants.models import Space
from sandboxes.errors import NotFound
from sandboxes.testing.simulated import SimulatedProvider
from sandboxes.types import OnTimeout, SandboxState
from tests.console.fleet.loop import ALICE, history, in_loop, resolve, row_of


async def compare(runtime: Runtime, space: Space) -> ReconcileReport:
    report = await reconcile(runtime=runtime, backend=space.backend, dry_run=False, actor=SYSTEM)
    assert report is not None
    assert report.aborted == ""
    return report


@in_loop
async def test_an_idle_pause_is_noticed_and_the_next_call_wakes_it(
    space: Space, account: SimulatedProvider
) -> None:
    async with Runtime() as runtime:
        live = await resolve(runtime, space)
        account.set_state(live.sandbox.id, SandboxState.PAUSED)
        report = await compare(runtime, space)
        assert (await row_of(space)).state == SessionState.PAUSED
        assert (report.paused, report.corrected) == (1, 1)
        assert (await compare(runtime, space)).corrected == 0
        assert (await resolve(runtime, space)).sandbox.id == live.sandbox.id
        assert (await row_of(space)).state == SessionState.ACTIVE
    assert await history(space) == [("created", "new"), ("paused", "idle"), ("resumed", "paused")]


@in_loop
async def test_one_that_woke_by_itself_is_shown_as_running(
    space: Space, account: SimulatedProvider
) -> None:
    async with Runtime() as runtime:
        live = await resolve(runtime, space)
        await sessions.pause(runtime=runtime, session=await _with_backend(space), actor=ALICE)
        account.set_state(live.sandbox.id, SandboxState.RUNNING)
        await compare(runtime, space)
        assert (await row_of(space)).state == SessionState.ACTIVE
    assert (await history(space))[1:] == [("paused", "requested"), ("resumed", "woken")]


@in_loop
async def test_a_sandbox_killed_from_outside_is_lost_until_the_next_call(
    space: Space, account: SimulatedProvider
) -> None:
    async with Runtime() as runtime:
        first = await resolve(runtime, space)
        account.vanish(first.sandbox.id)
        await compare(runtime, space)
        assert (await row_of(space)).state == SessionState.LOST
        second = await resolve(runtime, space)
        assert second.sandbox.id != first.sandbox.id
        row = await row_of(space)
        assert (row.state, row.sandbox_id) == (SessionState.ACTIVE, second.sandbox.id)
    assert await history(space) == [
        ("created", "new"),
        ("lost", "gone"),
        ("unbound", "gone"),
        ("rebuilt", "gone"),
    ]


@in_loop
async def test_where_idle_sandboxes_are_killed_the_history_says_so(
    space: Space, account: SimulatedProvider
) -> None:
    await Backend.objects.aupdate(
        settings={"account": "one", "pauses": False}, capabilities={"pause": False}
    )
    space = await Space.objects.select_related("backend").aget(pk=space.pk)
    async with Runtime() as runtime:
        live = await resolve(runtime, space)
        request = account.sandboxes[live.sandbox.id].request
        assert request.timeout.on_timeout is OnTimeout.KILL
        account.vanish(live.sandbox.id)
        await resolve(runtime, space)
    assert await history(space) == [
        ("created", "new"),
        ("unbound", "gone_idle"),
        ("rebuilt", "gone_idle"),
    ]
    event = await (await row_of(space)).events.afirst()
    assert event is not None
    assert "this backend can't pause" in event.why


@in_loop
async def test_what_the_database_missed_is_caught_up(
    space: Space, account: SimulatedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(event: Any) -> None:
        raise ConnectionError("no database")

    async with Runtime() as runtime:
        old = await resolve(runtime, space, "rebuilt")
        runtime.sessions._on_event = broken
        account.vanish(old.sandbox.id)
        new = await resolve(runtime, space, "rebuilt")
        unseen = await resolve(runtime, space, "unseen")
        assert (await row_of(space, "rebuilt")).sandbox_id == old.sandbox.id
        report = await compare(runtime, space)
        assert report.corrected == 2
    for session_id, live in (("rebuilt", new), ("unseen", unseen)):
        row = await row_of(space, session_id)
        assert (row.sandbox_id, row.state) == (live.sandbox.id, SessionState.ACTIVE)
        assert (await history(space, session_id))[-1] == ("seen", "row_behind")


@in_loop
async def test_a_listing_that_is_outdated_changes_no_row(space: Space) -> None:
    async with Runtime() as runtime:
        await resolve(runtime, space)
    row = await row_of(space)
    before = timezone.now() - timedelta(minutes=1)
    paused = {"state": SessionState.PAUSED, "kind": "paused", "reason": "idle"}
    assert not await rows.change_state(session=row, **paused, unless_changed_since=before)
    assert await rows.change_state(session=row, **paused)
    assert not await rows.change_state(session=row, **paused), "said twice, written once"


@in_loop
async def test_a_duplicate_that_goes_does_not_end_its_session(
    space: Space, account: SimulatedProvider, redis: BlockingRedis
) -> None:
    async with Runtime() as runtime:
        first = await resolve(runtime, space)
        account.start(account.sandboxes[first.sandbox.id].request)
        redis.flushall()
        claimed = await resolve(runtime, space)
    assert claimed.sandbox.id == first.sandbox.id
    assert (await row_of(space)).state == SessionState.ACTIVE
    assert (await history(space))[-1] == ("destroyed", "duplicate")


@in_loop
async def test_pausing_what_is_gone_says_so(space: Space, account: SimulatedProvider) -> None:
    async with Runtime() as runtime:
        live = await resolve(runtime, space)
        account.vanish(live.sandbox.id)
        with pytest.raises(NotFound, match="its next call gets a new one"):
            await sessions.pause(runtime=runtime, session=await _with_backend(space), actor=ALICE)
    assert (await row_of(space)).state == SessionState.LOST


@in_loop
async def test_destroying_ends_the_session_even_without_a_sandbox(
    space: Space, account: SimulatedProvider
) -> None:
    async with Runtime() as runtime:
        live = await resolve(runtime, space)
        account.vanish(live.sandbox.id)
        await sessions.destroy(runtime=runtime, space=space, session_id="talk", actor=ALICE)
        await sessions.destroy(runtime=runtime, space=space, session_id="talk", actor=ALICE)
    assert (await row_of(space)).state == SessionState.DESTROYED
    assert [kind for kind, _ in await history(space)] == ["created", "destroyed"]


async def _with_backend(space: Space) -> Session:
    return await Session.objects.select_related("backend").aget(space=space, session_id="talk")
