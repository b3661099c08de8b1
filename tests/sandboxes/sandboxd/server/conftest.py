from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from sandboxes.sandboxd.app import Daemon
from tests.sandboxes.daemon import Daemon as RealDaemon
from tests.sandboxes.sandboxd.server.raw import RawSandbox
from tests.sandboxes.sandboxd.server.scripted import ScriptedEngine

Create = Callable[..., Awaitable[RawSandbox]]


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
async def daemon(engine: ScriptedEngine, tmp_path: Path) -> AsyncIterator[Daemon]:
    started = await Daemon.start(engine, tmp_path)
    yield started
    await started.aclose()


@pytest.fixture
async def http(daemon: Daemon) -> AsyncIterator[httpx.AsyncClient]:
    """To a daemon in this process, over the scripted engine."""
    transport = httpx.ASGITransport(daemon.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://sandboxd") as client:
        yield client


@pytest.fixture
async def wire(sandboxd: RealDaemon) -> AsyncIterator[httpx.AsyncClient]:
    """To a daemon of its own process, over the real engine."""
    transport = httpx.AsyncHTTPTransport(uds=str(sandboxd.socket))
    async with httpx.AsyncClient(
        transport=transport, base_url="http://sandboxd", timeout=30
    ) as client:
        yield client


@pytest.fixture
async def create(wire: httpx.AsyncClient) -> AsyncIterator[Create]:
    async with AsyncExitStack() as stack:

        async def kill(sandbox: RawSandbox) -> None:
            assert (await wire.delete(f"/sandboxes/{sandbox.id}")).status_code in (204, 404)

        async def create(**body: Any) -> RawSandbox:
            response = await wire.post("/v2/sandboxes", json={"templateID": "base", **body})
            assert response.status_code == 201, response.text
            sandbox = RawSandbox(wire, response.json())
            stack.push_async_callback(kill, sandbox)
            return sandbox

        yield create


@pytest.fixture
async def sandbox(create: Create) -> RawSandbox:
    return await create()
