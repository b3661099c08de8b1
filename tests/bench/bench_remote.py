"""What the e2b and cube adapters add to a bare httpx call, against one local server; prints JSON.

python -m tests.bench.bench_remote [ROUNDS]
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sandboxes import registry
from sandboxes.client import SandboxClient
from sandboxes.network import CLOSED
from sandboxes.types import CreateRequest, ListFilter, Sandbox, TimeoutPolicy

BOX = {
    "sandboxID": "abcdefghij0123456789",
    "templateID": "base",
    "clientID": "node",
    "envdVersion": "0.6.4",
    "state": "running",
    "startedAt": "2026-01-01T00:00:00.000000Z",
    "endAt": "2036-01-01T00:00:00.000000Z",
    "metadata": {"tag": "x"},
}
ENTRY = {"entry": {"name": "f", "path": "/f", "type": "FILE_TYPE_FILE", "size": "1"}}


class Counted:
    """How many connections were made."""

    def __init__(self) -> None:
        self.peers: set[tuple[str, int]] = set()


def app(counted: Counted) -> Starlette:
    async def answer(request: Request) -> Response:
        assert request.client is not None
        counted.peers.add(tuple(request.client))
        path, method = request.url.path, request.method
        if path == "/sandboxd/engine" or (method, path) == ("POST", "/v2/sandboxes"):
            return Response(status_code=404)
        if path == "/health":
            return Response(status_code=204)
        if path.startswith("/filesystem."):
            return JSONResponse(ENTRY)
        if path == "/v2/sandboxes":
            return JSONResponse([BOX] * 1)
        return JSONResponse(BOX, 201 if method == "POST" else 200)

    return Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST", "PUT"])])


@contextlib.contextmanager
def served(counted: Counted) -> Iterator[str]:
    config = uvicorn.Config(app(counted), port=0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


Call = Callable[[], Awaitable[object]]


async def timed(calls: dict[str, Call], rounds: int) -> dict[str, list[float]]:
    """Milliseconds, the calls taking turns so that all meet the same machine."""
    took: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 20):
        for name, call in calls.items():
            began = time.perf_counter()
            await call()
            if turn >= 20:
                took[name].append((time.perf_counter() - began) * 1000)
    return took


async def collected(items: AsyncIterator[object]) -> list[object]:
    return [item async for item in items]


def adapter_calls(name: str, client: SandboxClient) -> dict[str, Call]:
    box = Sandbox(id=BOX["sandboxID"], template_id="base")  # type: ignore[arg-type]
    files = client.files
    assert files is not None
    request = CreateRequest(
        template="base", network=CLOSED, timeout=TimeoutPolicy(timeout_s=60), metadata={"a": "b"}
    )
    return {
        f"{name} get": lambda: client.get(box.id),
        f"{name} list": lambda: collected(client.list(ListFilter(metadata={"tag": "x"}))),
        f"{name} create": lambda: client.create(request),
        f"{name} connect": lambda: client.connect(box.id, timeout_s=60),
        f"{name} stat": lambda: files.stat(box, "/f"),
    }


HTTP_CALLS = {"cube create": 2, "cube connect": 2}
"""More than one: Cube's create waits for envd, its connect looks first."""


async def measure(url: str, rounds: int, counted: Counted) -> dict[str, Any]:
    shared = {"api_url": url, "api_key": "k", "allow_private": True}
    limits = httpx.Limits(max_connections=None)
    async with (
        httpx.AsyncClient(base_url=url, trust_env=False, limits=limits) as bare,
        await registry.open_client("e2b", {**shared, "sandbox_url": url}) as e2b,
        await registry.open_client("cube", {**shared, "proxy_url": url}) as cube,
    ):
        calls: dict[str, Call] = {
            "bare get": lambda: bare.get("/sandboxes/x", headers={"X-API-Key": "k"}),
            "bare post": lambda: bare.post("/sandboxes", json=BOX),
            **adapter_calls("e2b", e2b),
            **adapter_calls("cube", cube),
        }
        counted.peers.clear()
        took = await timed(calls, rounds)
    median = {name: statistics.median(values) for name, values in took.items()}
    reads = ("get", "list")
    return {
        "rounds": rounds,
        "median_ms": {name: round(value, 3) for name, value in median.items()},
        "added_ms_per_http_call": {
            name: round(
                value / HTTP_CALLS.get(name, 1)
                - median["bare get" if name.split()[1] in reads else "bare post"],
                3,
            )
            for name, value in median.items()
            if not name.startswith("bare")
        },
        "connections": len(counted.peers),
        "calls": len(took) * (rounds + 20),
    }


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    counted = Counted()
    with served(counted) as url:
        print(json.dumps(asyncio.run(measure(url, rounds, counted)), indent=2))


if __name__ == "__main__":
    main()
