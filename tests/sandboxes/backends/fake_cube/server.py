"""Both listeners in a thread of their own, so that synchronous clients can be witnesses."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.requests import Request

from tests.sandboxes.backends.fake_cube.api import api
from tests.sandboxes.backends.fake_cube.cluster import Cluster
from tests.sandboxes.backends.fake_cube.faults import Faults
from tests.sandboxes.backends.fake_cube.profiles import PROFILES, Profile
from tests.sandboxes.backends.fake_cube.proxy import proxy

__all__ = ["FakeCube", "start"]

API_KEY = "cube-key-1"


@dataclass
class FakeCube:
    profile: Profile
    faults: Faults
    api_key: str = API_KEY
    api_port: int = 0
    proxy_port: int = 0
    control_calls: list[Request] = field(default_factory=list)
    data_calls: list[Request] = field(default_factory=list)
    cluster: Cluster = None  # type: ignore[assignment]

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self.api_port}"

    @property
    def proxy_url(self) -> str:
        return f"http://127.0.0.1:{self.proxy_port}"

    def settings(self, **changes: Any) -> dict[str, Any]:
        """What a backend of the product is given."""
        return {
            "api_url": self.api_url,
            "proxy_url": self.proxy_url,
            "api_key": self.api_key,
            "allow_private": True,
            **changes,
        }

    def paths(self, method: str) -> list[str]:
        return [call.url.path for call in self.control_calls if call.method == method]

    def forget(self) -> None:
        """Faults off, calls forgotten: for the next test."""
        self.faults.reset()
        self.control_calls.clear()
        self.data_calls.clear()
        self.cluster.woken.clear()


@contextmanager
def start(socket: Path, *, version: str = "0.7") -> Iterator[FakeCube]:
    """Running until the block is left; what it made is deleted then."""
    fake = FakeCube(PROFILES[version], Faults())
    started = threading.Event()
    stop: list[Any] = []
    thread = threading.Thread(target=lambda: asyncio.run(_serve(fake, socket, started, stop)))
    thread.start()
    try:
        assert started.wait(10), "the fake cluster did not start"
        yield fake
    finally:
        loop, event = stop
        loop.call_soon_threadsafe(event.set)
        thread.join(20)
        assert not thread.is_alive()


async def _serve(fake: FakeCube, socket: Path, started: threading.Event, stop: list[Any]) -> None:
    ended = asyncio.Event()
    transport = httpx.AsyncHTTPTransport(uds=str(socket), limits=httpx.Limits(max_connections=None))
    async with httpx.AsyncClient(
        transport=transport, base_url="http://sandboxd", timeout=60, trust_env=False
    ) as engine:
        fake.cluster = Cluster(engine, fake.profile, fake.faults)
        control = _server(api(fake.cluster, api_key=fake.api_key, seen=fake.control_calls))
        data = _server(proxy(fake.cluster, seen=fake.data_calls))
        servers = [asyncio.create_task(server.serve()) for server in (control, data)]
        sweeper = asyncio.create_task(fake.cluster.sweep_forever())
        while not (control.started and data.started):  # noqa: ASYNC110 - uvicorn has no event
            await asyncio.sleep(0.01)
        fake.api_port, fake.proxy_port = _port(control), _port(data)
        stop += [asyncio.get_running_loop(), ended]
        started.set()
        await ended.wait()
        sweeper.cancel()
        await asyncio.gather(sweeper, return_exceptions=True)
        await fake.cluster.close()
        control.should_exit = data.should_exit = True
        await asyncio.gather(*servers)


def _server(app: Any) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        log_level="error",
        lifespan="off",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=30,
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    return server


def _port(server: uvicorn.Server) -> int:
    return int(server.servers[0].sockets[0].getsockname()[1])
