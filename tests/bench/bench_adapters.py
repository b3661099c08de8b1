"""What the E2B and Cube adapters cost beside a bare httpx call of the same request, and whether they reuse
connections. Prints one JSON object; asserts nothing.

    python -m tests.bench.bench_adapters [--quick]

The server is a process of its own that answers at once. Calls take turns, so that a busy machine slows both
alike; look at `over_bare_ms` and at the ratio, not at the times.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx

from sandboxes.backends.cube.client import CubeClient
from sandboxes.backends.cube.control import Features
from sandboxes.backends.cube.settings import Settings as CubeSettings
from sandboxes.backends.cube.settings import wire_settings
from sandboxes.backends.e2b import E2B_CAPABILITIES, E2BClient
from sandboxes.client import SandboxClient
from sandboxes.types import ExecRequest, Sandbox
from sandboxes.wire.client import WireSettings
from sandboxes.wire.connect import STREAM_CONTENT_TYPE, encode_end, encode_message
from sandboxes.wire.envd import Addressing
from sandboxes.wire.failures import Service

_BOX = Sandbox(id="abc123", template_id="t", access_token="data-token")
_DETAIL = {"sandboxID": "abc123", "templateID": "t", "state": "running", "metadata": {"a": "b"}}
_RUN = (
    encode_message({"event": {"start": {"pid": 7}}})
    + encode_message({"event": {"data": {"stdout": "aGkK"}}})
    + encode_message({"event": {"end": {"exited": True, "status": "exit status 0"}}})
    + encode_end()
)
_START = "/process.Process/Start"
_FEATURES = Features(network_update=True, volumes=True, v2_create=False)
_LIMIT_MS = 3.0


async def serve() -> None:
    """Until its input ends. Says its port first, then the number of connections for each line it reads."""
    connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.lower().split(b"\r\n")
                length = next((int(x[15:]) for x in lines if x.startswith(b"content-length:")), 0)
                await reader.readexactly(length)
                streams = _START.lower().encode() in lines[0]
                body = _RUN if streams else json.dumps(_DETAIL).encode()
                kind = STREAM_CONTENT_TYPE if streams else "application/json"
                writer.write(
                    f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                    + body
                )
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(connections, flush=True)
        connections = 0


@asynccontextmanager
async def server_process() -> AsyncIterator[tuple[int, Callable[[], Awaitable[int]]]]:
    """Its port, and asking it how many connections were made since the last time."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.bench_adapters", "--serve"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None  # noqa: PT018 - both are pipes
    told, heard = process.stdin, process.stdout

    async def connections() -> int:
        told.write(b"\n")
        return int(await heard.readline())

    try:
        yield int(await heard.readline()), connections
    finally:
        told.close()
        await process.wait()


def e2b(port: int) -> E2BClient:
    url = f"http://127.0.0.1:{port}"
    service = Service(provider="e2b", place=f"the server at {url}", mend="start it")
    settings = WireSettings(
        service=service, api_url=url, api_key="k", addressing=Addressing(shared_url=url)
    )
    return E2BClient(settings, E2B_CAPABILITIES)


def cube(port: int) -> CubeClient:
    url = f"http://127.0.0.1:{port}"
    settings = CubeSettings(api_url=url, proxy_url=url, api_key="k", allow_private=True)
    return CubeClient(wire_settings(settings), features=_FEATURES)


async def bare_get(http: httpx.AsyncClient) -> None:
    (await http.get("/sandboxes/abc123")).json()


async def bare_exec(http: httpx.AsyncClient) -> None:
    content = encode_message({"process": {"cmd": "true", "args": [], "envs": {}}})
    headers = {"Content-Type": STREAM_CONTENT_TYPE}
    async with http.stream("POST", _START, content=content, headers=headers) as response:
        async for _ in response.aiter_raw():
            pass


async def compare(
    bare: Callable[[], Awaitable[Any]], adapter: Callable[[], Awaitable[Any]], rounds: int
) -> dict[str, float | bool]:
    took: dict[str, list[float]] = {"bare": [], "adapter": []}
    for number in range(rounds + 20):
        for name, call in (("bare", bare), ("adapter", adapter)):
            begun = time.perf_counter()
            await call()
            if number >= 20:  # the first ones open connections
                took[name].append((time.perf_counter() - begun) * 1000)
    over = sorted(a - b for a, b in zip(took["adapter"], took["bare"], strict=True))
    bare_ms, adapter_ms = statistics.median(took["bare"]), statistics.median(took["adapter"])
    return {
        "bare_median_ms": round(bare_ms, 3),
        "adapter_median_ms": round(adapter_ms, 3),
        "over_bare_ms": round(statistics.median(over), 3),
        "over_bare_fastest_ms": round(min(took["adapter"]) - min(took["bare"]), 3),
        "ratio": round(adapter_ms / bare_ms, 2),
        "within_limit": statistics.median(over) <= _LIMIT_MS,
    }


async def measure(rounds: int) -> dict[str, Any]:
    figures: dict[str, Any] = {"rounds": rounds, "limit_ms": _LIMIT_MS}
    request = ExecRequest(argv=("true",))
    async with server_process() as (port, connections):
        for name, client in (("e2b", e2b(port)), ("cube", cube(port))):
            async with client, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
                figures[name] = await both(client, http, request, rounds)
                # One is the bare client's, and one each the adapter's two planes'.
                figures[name]["connections"] = await connections()
    return figures


async def both(
    client: SandboxClient, http: httpx.AsyncClient, request: ExecRequest, rounds: int
) -> dict[str, Any]:
    return {
        "get": await compare(lambda: bare_get(http), lambda: client.get("abc123"), rounds),
        "exec": await compare(lambda: bare_exec(http), lambda: client.run(_BOX, request), rounds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        asyncio.run(serve())
        return
    print(json.dumps(asyncio.run(measure(100 if args.quick else 500)), indent=2))


if __name__ == "__main__":
    main()
