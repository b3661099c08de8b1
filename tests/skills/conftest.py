"""Fixtures of the skills' tests: a real Redis, own media, and spaces to build in."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.tenants.models import Space
from tests.sandboxes.daemon import Daemon
from tests.sandboxes.sessions.world import RedisServer
from tests.skills.world import make_space


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    if shutil.which("redis-server") is None:
        pytest.fail("redis-server is missing; install it: apt-get install redis-server")
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def redis_url(redis_server: RedisServer, settings: Any) -> str:
    settings.REDIS_URL = f"unix://{redis_server.socket}"
    return str(settings.REDIS_URL)


@pytest.fixture(autouse=True)
def media(tmp_path: Path, settings: Any) -> Path:
    settings.MEDIA_ROOT = tmp_path / "media"
    return tmp_path / "media"


@pytest.fixture
def real_space(db: None, redis_url: str, sandboxd: Daemon) -> Space:
    """On a sandboxd of its own, with runc."""
    return make_space("local", socket=str(sandboxd.socket))
