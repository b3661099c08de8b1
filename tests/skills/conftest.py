"""Fixtures of the skills' tests: a real Redis, own media, and spaces to build in."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.tenants.models import Space
from sandboxes.registry import PROVIDERS, Provider
from skills import tasks
from tests.sandboxes.conftest import sandboxd
from tests.sandboxes.daemon import Daemon
from tests.sandboxes.sessions.world import RedisServer
from tests.skills import simulated_backend
from tests.skills.simulated_backend import FileProvider
from tests.skills.world import make_space

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
def redis_url(redis_server: RedisServer, settings: Any) -> str:
    settings.REDIS_URL = f"unix://{redis_server.socket}"
    return str(settings.REDIS_URL)


@pytest.fixture(autouse=True)
def media(tmp_path: Path, settings: Any) -> Path:
    settings.MEDIA_ROOT = tmp_path / "media"
    return tmp_path / "media"


@pytest.fixture
def handed_on(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """(task, id) of what would be handed to a worker."""
    found: list[tuple[str, str]] = []
    for task in (tasks.run_build, tasks.tell_sessions, tasks.delete_snapshot, tasks.check_snapshot):
        monkeypatch.setattr(task, "delay", lambda pk, name=task.__name__: found.append((name, pk)))
    return found


@pytest.fixture
def space(
    db: None,
    handed_on: list[tuple[str, str]],
    redis_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Space]:
    """On a simulated account of its own; nothing is handed to workers."""
    monkeypatch.setitem(
        PROVIDERS,
        simulated_backend.PROVIDER,
        Provider(simulated_backend.PROVIDER, "Simulated", "tests.skills.simulated_backend"),
    )
    path = str(tmp_path / "account")
    yield make_space(simulated_backend.PROVIDER, path=path)
    simulated_backend.ACCOUNTS.pop(path, None)


@pytest.fixture
def account(space: Space) -> FileProvider:
    return simulated_backend.account(space.backend.settings["path"])


@pytest.fixture
def real_space(db: None, redis_url: str, sandboxd: Daemon) -> Space:
    """On a sandboxd of its own, with runc."""
    return make_space("local", socket=str(sandboxd.socket))
