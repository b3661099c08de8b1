"""The runtime of a process: one per loop, closed at the end, many calls over few connections."""

from __future__ import annotations

import asyncio
from typing import Any

from redis import Redis as BlockingRedis

from console.asgi import application
from console.fleet.models import Backend
from console.fleet.runtime import Runtime, close_shared_runtime, shared_runtime
from console.tenants.models import Space
from tests.console.fleet.loop import in_loop, resolve


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
async def test_a_burst_of_calls_shares_a_bounded_number_of_connections(
    space: Space, redis: BlockingRedis
) -> None:
    async with Runtime() as runtime:
        await asyncio.gather(*(resolve(runtime, space, f"talk-{n}") for n in range(120)))
        assert _connections(redis) <= 64


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
