from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from sandboxes.sandboxd.app import Daemon
from tests.sandboxes.sandboxd.server.scripted import ScriptedEngine


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
    transport = httpx.ASGITransport(daemon.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://sandboxd") as client:
        yield client
