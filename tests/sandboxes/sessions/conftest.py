"""Fixtures of the session tests; what they are made of is in world.py."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from sandboxes.testing.simulated import SimulatedProvider
from tests.sandboxes.sessions.world import RedisServer, Replica, Space


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    if shutil.which("redis-server") is None:
        pytest.fail("redis-server is missing; install it: apt-get install redis-server")
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def own_redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """One to kill, freeze and flush."""
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[Redis]:
    client = Redis(unix_socket_path=redis_server.socket)
    await client.flushall()
    yield client
    await client.aclose()


@pytest.fixture
def space() -> Space:
    return Space()


@pytest.fixture
def provider() -> SimulatedProvider:
    return SimulatedProvider(templates=["base", "release-7", "release-8"])


@pytest.fixture
async def new_replica(
    redis: Redis, provider: SimulatedProvider, space: Space
) -> AsyncIterator[Callable[..., Replica]]:
    made: list[Replica] = []

    def new(**options: Any) -> Replica:
        replica = Replica(redis, provider, space, **options)
        made.append(replica)
        return replica

    yield new
    for replica in made:
        await replica.manager.aclose()


@pytest.fixture
def replica(new_replica: Callable[..., Replica]) -> Replica:
    return new_replica()
