"""What a person reads when a session can't start, or can't do what was asked."""

from __future__ import annotations

from typing import Any

import pytest

from console.fleet import sessions
from console.fleet.models import Backend, Session
from console.fleet.runtime import Runtime
from console.tenants.models import Space
from sandboxes.errors import InvalidRequest, Unsupported
from sandboxes.sessions import Outcome, Rollout
from sandboxes.testing.simulated import SimulatedProvider
from skills.models import Release, ReleaseState
from tests.console.fleet.loop import ALICE, in_loop, resolve, row_of


async def serve_release(space: Space, account: SimulatedProvider) -> Release:
    account.templates["snap-1"] = account.clock()
    release = await Release.objects.acreate(
        space=space,
        generation=3,
        backend=space.backend,
        fingerprint=space.backend.fingerprint,
        state=ReleaseState.ACTIVE,
        planned_name="three",
        snapshot_id="snap-1",
    )
    await Space.objects.aupdate(current_release=release)
    return release


async def refused(runtime: Runtime, space: Space, session_id: str = "talk") -> str:
    with pytest.raises(InvalidRequest) as caught:
        await resolve(runtime, space, session_id)
    assert caught.value.kind == "invalid_request"
    return caught.value.message


@in_loop
async def test_a_template_that_is_not_there(space: Space) -> None:
    await Space.objects.aupdate(base_template="nowhere")
    async with Runtime() as runtime:
        assert await refused(runtime, space) == (
            "Backend “Here” has no template called “nowhere”; choose another base template in the "
            "space's settings, or make that one there."
        )
    assert not await Session.objects.aexists()


@in_loop
async def test_a_release_whose_snapshot_is_gone(
    space: Space, account: SimulatedProvider, handed_on: list[str]
) -> None:
    release = await serve_release(space, account)
    del account.templates["snap-1"]
    async with Runtime() as runtime:
        assert await refused(runtime, space) == (
            "The snapshot of release 3 is gone from backend “Here”; rebuild that release or roll back "
            "to another one, and call again."
        )
    assert handed_on == [release.pk], "whoever looks next sees it marked as broken"


@in_loop
async def test_a_session_on_a_release_that_was_deleted_runs_on(
    space: Space, account: SimulatedProvider
) -> None:
    release = await serve_release(space, account)
    async with Runtime() as runtime:
        live = await resolve(runtime, space)
        assert live.resolved.binding.release == release.pk
        await Space.objects.aupdate(current_release=None)
        await Release.objects.aupdate(state=ReleaseState.DELETED)
        del account.templates["snap-1"]
        assert (await resolve(runtime, space)).sandbox.id == live.sandbox.id
        # Killed as well, it starts from what the space has now.
        account.vanish(live.sandbox.id)
        rebuilt = await resolve(runtime, space)
        assert rebuilt.resolved.outcome is Outcome.REBUILT
        assert account.sandboxes[rebuilt.sandbox.id].request.template == "base"
    assert (await row_of(space)).release_id is None


@in_loop
async def test_pausing_where_that_is_impossible(space: Space, account: SimulatedProvider) -> None:
    await Backend.objects.aupdate(settings={"account": "one", "pauses": False})
    space = await Space.objects.select_related("backend").aget(pk=space.pk)
    async with Runtime() as runtime:
        await resolve(runtime, space)
        row = await Session.objects.select_related("backend").aget(space=space)
        with pytest.raises(Unsupported, match="Destroy the session instead"):
            await sessions.pause(runtime=runtime, session=row, actor=ALICE)


@in_loop
async def test_a_stale_session_is_not_over_if_its_rebuild_fails(
    space: Space, account: SimulatedProvider
) -> None:
    """Its attachments wait for the next try."""
    async with Runtime() as runtime:
        await resolve(runtime, space)
        tell: dict[str, Any] = {"tenant": space.tenant_id, "space": space.pk, "why": "release 4"}
        await runtime.sessions.mark_stale(**tell, rollout=Rollout.NEXT_TURN)
        del account.templates["base"]
        await refused(runtime, space)
        assert (await row_of(space)).state == "lost"
        account.templates["base"] = account.clock()
        await resolve(runtime, space)
        assert (await row_of(space)).state == "active"
