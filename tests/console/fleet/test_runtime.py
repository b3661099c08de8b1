"""The runtime of a process: one per loop, closed at the end, and bursts take their turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from redis import Redis as BlockingRedis

from console.asgi import application
from console.fleet import runtime as runtimes
from console.fleet.models import Backend
from console.fleet.runtime import Runtime, close_shared_runtime, shared_runtime
from console.tenants.models import Space
from sandboxes.errors import Capacity
from sandboxes.testing.simulated import SimulatedProvider
from tests.console.fleet.loop import in_loop, resolve
from tests.sandboxes.sessions.world import until


@in_loop
async def test_the_web_process_closes_its_runtime_when_it_ends(
    space: Space, redis: BlockingRedis
) -> None:
    runtime = shared_runtime()
    assert shared_runtime() is runtime
    await resolve(runtime, space)
    closed: list[str] = []
    client = await runtime.client(space.backend)
    client.aclose = lambda: _note(closed)  # type: ignore[method-assign]
    assert _connections(redis) > 0

    sent: list[dict[str, Any]] = []
    received = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> dict[str, Any]:
        return next(received)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await application({"type": "lifespan"}, receive, send)
    assert [message["type"] for message in sent] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]
    assert closed == ["client"]
    assert _connections(redis) == 0
    await close_shared_runtime()
    assert shared_runtime() is not runtime
    await close_shared_runtime()


@in_loop
async def test_a_burst_takes_its_turn_and_a_backend_that_hangs_says_so(
    space: Space, account: SimulatedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang = asyncio.Event()
    inside = 0

    async def wait(op: str, phase: str, sandbox_id: str) -> None:
        nonlocal inside
        if (op, phase) == ("create", "before"):
            inside += 1
            await hang.wait()

    account.intercept = wait
    async with Runtime() as runtime:
        calls = [asyncio.create_task(resolve(runtime, space, f"talk-{n}")) for n in range(40)]
        await until(lambda: inside == runtimes._RESOLVES_AT_ONCE)
        with monkeypatch.context() as patch:
            patch.setattr(runtimes, "_PLACE_WAIT_S", 0.2)
            with pytest.raises(Capacity, match="try again in a few seconds") as caught:
                await resolve(runtime, space, "one-more")
        assert caught.value.retry_after_s
        hang.set()
        await asyncio.gather(*calls)
        assert inside == 40


@in_loop
async def test_changed_settings_open_a_new_client_and_close_the_old_one_in_the_end(
    space: Space,
) -> None:
    async with Runtime() as runtime:
        old = await runtime.client(space.backend)
        assert await runtime.client(space.backend) is old
        await Backend.objects.aupdate(settings={"account": "two"})
        backend = await Backend.objects.aget()
        new = await runtime.client(backend)
        assert new is not old
        closed: list[str] = []
        old.aclose = lambda: _note(closed)  # type: ignore[method-assign]
    assert closed == ["client"]


async def _note(closed: list[str]) -> None:
    closed.append("client")


def _connections(redis: BlockingRedis) -> int:
    """Besides the test's own."""
    return len(redis.client_list()) - 1
