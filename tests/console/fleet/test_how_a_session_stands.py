"""How one session stands at this moment: bound or not, behind what, and what rebuilding by hand does."""

from __future__ import annotations

import pytest

from console.fleet import renewal, sessions
from console.fleet.condition import Condition, condition_of
from console.fleet.models import Attachment, Session, SessionState
from console.fleet.runtime import Runtime
from console.policies.models import NetworkPolicyRevision
from console.tenants.models import Space
from sandboxes.errors import Conflict, NotFound, Unavailable
from sandboxes.testing.simulated import SimulatedProvider
from sandboxes.types import SandboxState
from skills.models import Release, ReleaseState
from tests.console.fleet.loop import ALICE, history, in_loop, resolve


async def row_of(space: Space) -> Session:
    """With all that a page reads of it."""
    rows = Session.objects.select_related(
        "space__backend",
        "space__current_release",
        "space__candidate_release",
        "backend",
        "release",
        "policy",
    )
    return await rows.aget(space=space, session_id="talk")


async def condition(runtime: Runtime, space: Space) -> Condition:
    return await condition_of(runtime, await row_of(space))


def said(found: Condition) -> list[tuple[str, str, str]]:
    return [(drift.what, drift.has, drift.wanted) for drift in found.drift]


@in_loop
async def test_a_fresh_one_lacks_nothing(space: Space) -> None:
    async with Runtime() as runtime:
        live = await resolve(runtime, space)
        found = await condition(runtime, space)
    assert found.binding is not None
    assert found.binding.sandbox_id == live.sandbox.id
    assert (found.state, found.drift, found.stale, found.trouble) == ("active", [], None, "")
    assert found.turn is not None
    assert not found.turn.active


@in_loop
async def test_what_is_newer_in_the_space_is_said(space: Space, account: SimulatedProvider) -> None:
    async with Runtime() as runtime:
        await resolve(runtime, space)
        await NetworkPolicyRevision.objects.acreate(space=space, number=2)
        assert said(await condition(runtime, space)) == [("policy", "1", "2")]
        release = await Release.objects.acreate(
            space=space,
            generation=7,
            backend=space.backend,
            fingerprint=space.backend.fingerprint,
            state=ReleaseState.ACTIVE,
            planned_name="seven",
            snapshot_id="snap",
        )
        await Space.objects.filter(pk=space.pk).aupdate(current_release=release)
        found = await condition(runtime, space)
        assert said(found) == [("release", "", "7"), ("policy", "1", "2")]
        # One that can't start here would not be served either.
        await Release.objects.filter(pk=release.pk).aupdate(state=ReleaseState.BROKEN)
        assert said(await condition(runtime, space)) == [("policy", "1", "2")]
        # What was applied to the running sandbox is in the row.
        newest = await NetworkPolicyRevision.objects.aget(space=space, number=2)
        await Session.objects.filter(space=space).aupdate(policy=newest)
        assert said(await condition(runtime, space)) == []
        await Space.objects.filter(pk=space.pk).aupdate(base_template="other")
        assert said(await condition(runtime, space)) == [], "whether it is the same is not known"
        account.templates["other"] = account.clock()
        assert said(await condition(runtime, space)) == [("template", "base", "other")]


@in_loop
async def test_the_backend_is_right_and_looking_wakes_nothing(
    space: Space, account: SimulatedProvider
) -> None:
    async with Runtime() as runtime:
        live = await resolve(runtime, space)
        account.set_state(live.sandbox.id, SandboxState.PAUSED)
        assert (await condition(runtime, space)).state == SessionState.PAUSED
        assert account.calls["connect"] == 0
        await renewal.resume(runtime=runtime, session=await row_of(space), actor=ALICE)
        assert (await condition(runtime, space)).state == SessionState.ACTIVE
        account.vanish(live.sandbox.id)
        found = await condition(runtime, space)
        assert (found.state, found.drift) == (SessionState.LOST, [])
        with pytest.raises(NotFound, match="its next call gets a new one"):
            await renewal.resume(runtime=runtime, session=await row_of(space), actor=ALICE)
        assert (await row_of(space)).state == SessionState.LOST


@in_loop
async def test_what_can_t_be_found_out_is_said(space: Space, account: SimulatedProvider) -> None:
    async with Runtime() as runtime:
        await resolve(runtime, space)
        account.fail_next("get", Unavailable("The backend does not answer."))
        found = await condition(runtime, space)
    assert found.trouble == "The backend does not answer."
    assert found.state == SessionState.ACTIVE, "the row's word, while nobody knows better"


@in_loop
async def test_rebuilding_by_hand(space: Space, account: SimulatedProvider) -> None:
    async with Runtime() as runtime:
        before = await resolve(runtime, space)
        other = await sessions.resolve(
            runtime=runtime, space=space, session_id="other", actor=ALICE
        )
        assert await renewal.rebuild(runtime=runtime, session=await row_of(space), actor=ALICE)
        found = await condition(runtime, space)
        assert found.binding is not None
        assert found.binding.sandbox_id != before.sandbox.id
        assert before.sandbox.id not in account.sandboxes
        assert other.sandbox.id in account.sandboxes, "nobody else's is touched"
        assert found.stale is None
    assert (await history(space))[1:] == [("destroyed", "asked"), ("rebuilt", "stale")]
    assert await Attachment.objects.acount() == 0


@in_loop
async def test_a_turn_under_way_keeps_its_sandbox(space: Space, account: SimulatedProvider) -> None:
    async with Runtime() as runtime:
        key = sessions.session_key(space, "talk")
        await runtime.sessions.begin_turn(key=key)
        before = await resolve(runtime, space)
        assert not await renewal.rebuild(runtime=runtime, session=await row_of(space), actor=ALICE)
        found = await condition(runtime, space)
        assert found.stale is not None
        assert found.turn is not None
        assert found.turn.refs == 1
        assert before.sandbox.id in account.sandboxes
        await runtime.sessions.end_turn(key=key)
        assert (await resolve(runtime, space)).sandbox.id != before.sandbox.id


@in_loop
async def test_nothing_is_put_in_the_place_of_a_client_s_sandbox(
    space: Space, account: SimulatedProvider
) -> None:
    async with Runtime() as runtime:
        live = await resolve(runtime, space)
        await Session.objects.filter(space=space).aupdate(created_by="gateway, key sky_x")
        await Space.objects.filter(pk=space.pk).aupdate(base_template="other")
        found = await condition(runtime, space)
        assert found.is_client_s
        assert found.drift == []
        with pytest.raises(Conflict, match="holds on to it"):
            await renewal.rebuild(runtime=runtime, session=await row_of(space), actor=ALICE)
        assert live.sandbox.id in account.sandboxes
