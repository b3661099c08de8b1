"""Fixtures of the fleet's tests: a real Redis, a space on a simulated account, one on a real sandboxd."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis as BlockingRedis

from console.audit.services import SYSTEM
from console.fleet.models import Backend
from console.fleet.services import create_space
from console.tenants.models import Space, Tenant
from sandboxes.registry import PROVIDERS, Provider
from sandboxes.testing.simulated import SimulatedProvider
from skills import tasks
from tests.console.fleet import memory_backend
from tests.sandboxes.conftest import sandboxd
from tests.sandboxes.daemon import Daemon, base_template
from tests.sandboxes.sessions.world import RedisServer

__all__ = ["sandboxd"]


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    if shutil.which("redis-server") is None:
        pytest.fail("redis-server is missing; install it: apt-get install redis-server")
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def redis(redis_server: RedisServer, settings: Any) -> Iterator[BlockingRedis]:
    settings.REDIS_URL = f"unix://{redis_server.socket}"
    with BlockingRedis(unix_socket_path=redis_server.socket) as client:
        client.flushall()
        yield client


@pytest.fixture
def own_redis(tmp_path: Path, settings: Any) -> Iterator[RedisServer]:
    """One to kill, freeze and flush."""
    server = RedisServer(tmp_path)
    server.start()
    settings.REDIS_URL = f"unix://{server.socket}"
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def media(tmp_path: Path, settings: Any) -> Path:
    settings.MEDIA_ROOT = tmp_path / "media"
    return tmp_path / "media"


@pytest.fixture
def handed_on(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The releases whose snapshot a worker would be asked to check."""
    found: list[str] = []
    monkeypatch.setattr(tasks.check_snapshot, "delay", found.append)
    return found


def make_space(provider: str, *, slug: str = "acme", **settings: Any) -> Space:
    tenant = Tenant.objects.create(slug=slug, name=slug.title())
    backend = Backend.objects.create(
        tenant=tenant, name="Here", provider=provider, settings=settings
    )
    space = create_space(tenant=tenant, name="Lab", slug="lab", backend=backend, actor=SYSTEM)
    return Space.objects.select_related("backend", "tenant").get(pk=space.pk)


@pytest.fixture
def space(
    db: None, redis: BlockingRedis, handed_on: list[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Space]:
    monkeypatch.setitem(
        PROVIDERS,
        memory_backend.PROVIDER,
        Provider(memory_backend.PROVIDER, "Memory", "tests.console.fleet.memory_backend"),
    )
    yield make_space(memory_backend.PROVIDER, account="one")
    memory_backend.ACCOUNTS.clear()
    memory_backend.REVOKED.clear()
    memory_backend.TOLD_IDS.clear()


@pytest.fixture
def account(space: Space) -> SimulatedProvider:
    return memory_backend.account("one")


@pytest.fixture
def real_space(db: None, sandboxd: Daemon, handed_on: list[str]) -> Space:
    """On a sandboxd of its own, with runc. Ask for a Redis as well."""
    space = make_space("local", socket=str(sandboxd.socket))
    Space.objects.filter(pk=space.pk).update(base_template=base_template())
    space.refresh_from_db(fields=["base_template"])
    return space
