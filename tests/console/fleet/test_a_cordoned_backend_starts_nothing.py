"""A backend that an admin has cordoned: what runs runs on, and nothing new begins."""

from __future__ import annotations

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError
from redis import Redis as BlockingRedis

from console.fleet import backends, sessions
from console.fleet.models import BackendClosed
from console.fleet.policies import try_host
from console.fleet.runtime import Runtime
from console.tenants.models import Space
from sandboxes.network import NetworkPolicy
from sandboxes.testing.simulated import SimulatedProvider
from skills.services import request_build
from tests.console.fleet.loop import ALICE, in_loop, resolve


async def cordon(space: Space) -> None:
    await sync_to_async(backends.cordon_backend)(
        backend=space.backend, actor=ALICE, reason="The host is moved."
    )
    await space.backend.arefresh_from_db()


@in_loop
async def test_a_new_session_is_refused_with_the_reason(
    space: Space, account: SimulatedProvider
) -> None:
    await cordon(space)
    async with Runtime() as runtime:
        with pytest.raises(BackendClosed, match=r"The host is moved\."):
            await resolve(runtime, space)
        with pytest.raises(BackendClosed):
            await try_host(
                runtime=runtime,
                space=space,
                policy=NetworkPolicy(outbound=True, inbound=False),
                target="http://example.com",
                actor=ALICE,
            )
    with pytest.raises(BackendClosed):
        await sync_to_async(request_build)(space=space, actor=ALICE, versions=[])
    assert account.created == []
    await sync_to_async(backends.uncordon_backend)(backend=space.backend, actor=ALICE)
    async with Runtime() as runtime:
        assert (await resolve(runtime, space)).sandbox.id


@pytest.mark.parametrize("in_a_turn", [False, True])
@in_loop
async def test_a_session_keeps_its_sandbox_even_if_that_is_stale(
    space: Space, account: SimulatedProvider, redis: BlockingRedis, in_a_turn: bool
) -> None:
    async with Runtime() as runtime:
        first = await resolve(runtime, space)
        await runtime.sessions.mark_stale(tenant=space.tenant_id, space=space.pk, why="a release")
        await cordon(space)
        if in_a_turn:
            await runtime.sessions.begin_turn(key=first.resolved.binding.key)

        kept = await resolve(runtime, space)
        assert (kept.sandbox.id, kept.resolved.stale) == (first.sandbox.id, True)
        await sync_to_async(backends.uncordon_backend)(backend=space.backend, actor=ALICE)
        rebuilt = await resolve(runtime, space)

    assert rebuilt.sandbox.id != first.sandbox.id, "the turn still has its ticket"
    assert [sandbox.id for sandbox in account.live()] == [rebuilt.sandbox.id]


@in_loop
async def test_a_stale_sandbox_is_not_given_up_while_the_database_is_away(
    space: Space, account: SimulatedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Runtime() as runtime:
        first = await resolve(runtime, space)
        await runtime.sessions.mark_stale(tenant=space.tenant_id, space=space.pk, why="a release")

        async def away(*_: object, **__: object) -> None:
            raise OperationalError("the database is away")

        with monkeypatch.context() as patched:
            patched.setattr(sessions, "sandbox_plan", away)
            kept = await resolve(runtime, space)
        assert (kept.sandbox.id, kept.resolved.stale) == (first.sandbox.id, True)
        assert (await resolve(runtime, space)).sandbox.id != first.sandbox.id
