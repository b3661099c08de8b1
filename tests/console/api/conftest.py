"""Fixtures of the API's tests: keys by right, and the console on a real uvicorn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from console.api.authentication import forget_keys
from console.api.views import forget_spaces
from console.audit.services import SYSTEM
from console.tenants.keys import issue_key
from console.tenants.models import Space, Tenant
from tests.console.api import server as servers
from tests.console.api.world import grants_everything
from tests.sandboxes import daemon as daemons
from tests.sandboxes.sessions.world import RedisServer

IssueKey = Callable[..., str]


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    forget_keys()
    forget_spaces()


@pytest.fixture
def make_key(db: None) -> IssueKey:
    def make(tenant: Tenant, scopes: Iterable[str], space: Space | None = None) -> str:
        """The secret of a new key."""
        return issue_key(
            principal=grants_everything(SYSTEM),
            tenant=tenant,
            name="test",
            scopes=scopes,
            space=space,
        )[1]

    return make


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def sandboxd() -> Iterator[daemons.Daemon]:
    if reason := daemons.why_not():
        pytest.skip(reason)
    with daemons.start() as daemon:
        yield daemon
        daemon.stop()
        assert daemons.leftovers(daemon) == []


@pytest.fixture(scope="session")
def console(
    tmp_path_factory: pytest.TempPathFactory,
    redis_server: RedisServer,
    sandboxd: daemons.Daemon,
) -> Iterator[servers.Server]:
    """The console with a space that serves a release with the skill `greeter`."""
    folder = tmp_path_factory.mktemp("console")
    with servers.start(
        folder,
        redis_socket=redis_server.socket,
        sandboxd_socket=str(sandboxd.socket),
        TESTED_SKILL="1",
    ) as server:
        yield server


@pytest.fixture
def api(console: servers.Server) -> Iterator[httpx.Client]:
    """With a key that may do everything in its tenant."""
    with httpx.Client(base_url=console.url, headers=console.headers(), timeout=60) as client:
        yield client


@pytest.fixture
def session(console: servers.Server, api: httpx.Client, request: Any) -> Iterator[str]:
    """The path of a session of this test's own, destroyed afterwards."""
    path = console.session(f"test-{request.node.name[:80]}".replace("[", "-").replace("]", ""))
    yield path
    api.delete(path)


@pytest.fixture
def redis_url(redis_server: RedisServer, settings: Any) -> str:
    settings.REDIS_URL = f"unix://{redis_server.socket}"
    return str(settings.REDIS_URL)


@pytest.fixture
def here() -> Path:
    return servers.CHECKOUT
