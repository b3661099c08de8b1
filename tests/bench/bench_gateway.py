"""What the gateway costs: the same calls through it and to sandboxd directly, side by side.

    python tests/bench/bench_gateway.py [--mb 100] [--streams 500]

Starts a sandboxd, a Redis and a console of its own; needs root, runc and the base template.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sandboxes.wire.connect import FrameDecoder, encode_message
from tests.console.api.server import start
from tests.sandboxes import daemon as daemons

STREAM = {"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"}


@dataclass(frozen=True)
class Target:
    name: str
    http: httpx.AsyncClient
    headers: dict[str, str]


@contextlib.contextmanager
def running() -> Iterator[tuple[str, str, str, int]]:
    """(console's URL, key, sandboxd's socket, the web process's id)."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name, daemons.start() as daemon:
        folder = Path(name)
        redis = subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", f"{name}/redis.sock", "--save", ""],
            stdout=subprocess.DEVNULL,
            cwd=name,
        )
        try:
            while not (folder / "redis.sock").exists():
                time.sleep(0.02)
            with start(
                folder, redis_socket=f"{name}/redis.sock", sandboxd_socket=str(daemon.socket)
            ) as console:
                key = console.facts["keys"]["e2b"]
                yield console.url, key, str(daemon.socket), console.process.pid
        finally:
            redis.terminate()
            redis.wait()


def start_request(script: str) -> bytes:
    process = {"cmd": "/bin/bash", "args": ["-c", script]}
    return encode_message({"process": process, "stdin": False})


async def events(target: Target, script: str) -> AsyncIterator[tuple[float, dict[str, object]]]:
    """(when it arrived, event), until the stream ends."""
    decoder = FrameDecoder()
    async with target.http.stream(
        "POST",
        "/process.Process/Start",
        headers={**target.headers, **STREAM},
        content=start_request(script),
    ) as answer:
        answer.raise_for_status()
        async for chunk in answer.aiter_raw():
            now = time.time()
            for frame in decoder.feed(chunk):
                if not frame.end:
                    yield now, frame.message["event"]


async def exec_ms(target: Target, count: int) -> list[float]:
    taken = []
    for _ in range(count):
        begun = time.perf_counter()
        async for _event in events(target, "true"):
            pass
        taken.append((time.perf_counter() - begun) * 1000)
    return taken


async def first_byte_ms(target: Target, count: int) -> list[float]:
    """From the moment that the process wrote it, by the host's one clock."""
    import base64

    script = f"for i in $(seq {count}); do echo $EPOCHREALTIME; read -t 0.02 <> <(:); done"
    taken = []
    async for arrived, event in events(target, script):
        data = event.get("data")
        if isinstance(data, dict):
            for line in base64.b64decode(data.get("stdout", "")).decode().split():
                taken.append((arrived - float(line)) * 1000)
    return taken


async def transfer(target: Target, size: int) -> tuple[float, float]:
    """MB/s up and down."""
    block = b"x" * (1024 * 1024)

    async def content() -> AsyncIterator[bytes]:
        for _ in range(size):
            yield block

    headers = {
        **target.headers,
        "Content-Type": "application/octet-stream",
        "Content-Length": str(size * len(block)),
        "Accept-Encoding": "identity",
    }
    begun = time.perf_counter()
    answer = await target.http.post("/files?path=/tmp/big", headers=headers, content=content())
    answer.raise_for_status()
    up = size / (time.perf_counter() - begun)
    begun, got = time.perf_counter(), 0
    down_headers = {**target.headers, "Accept-Encoding": "identity"}
    async with target.http.stream("GET", "/files?path=/tmp/big", headers=down_headers) as answer:
        answer.raise_for_status()
        async for chunk in answer.aiter_raw(1024 * 1024):
            got += len(chunk)
    assert got == size * len(block), got
    return up, size / (time.perf_counter() - begun)


def data_headers(box: dict[str, str]) -> dict[str, str]:
    return {
        "E2b-Sandbox-Id": box["sandboxID"],
        "E2b-Sandbox-Port": "49983",
        "X-Access-Token": box["envdAccessToken"],
    }


async def many_streams(targets: list[Target], count: int) -> tuple[float, int, dict[str, int]]:
    """Seconds until all of them had begun, how many ended well, and why others did not. Spread over
    several sandboxes: one's own limit of processes is not what is measured."""
    begun_all = asyncio.Event()
    begun = 0
    started = time.perf_counter()
    when = 0.0

    async def one(index: int) -> bool:
        nonlocal begun, when
        ended = False
        async for _, event in events(targets[index % len(targets)], "exec sleep 30"):
            if "start" in event:
                begun += 1
                when = time.perf_counter() - started
                if begun == count:
                    begun_all.set()
            ended = ended or "end" in event
        return ended

    results = await asyncio.gather(*(one(i) for i in range(count)), return_exceptions=True)
    failures = Counter(repr(result)[:200] for result in results if result is not True)
    return when, sum(result is True for result in results), dict(failures)


def rss_mb(pid: int, field: str = "VmRSS") -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    return 0.0


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=100)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=40)
    args = parser.parse_args()
    with running() as (url, key, socket, pid):
        limits = httpx.Limits(max_connections=None)
        async with (
            httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as through,
            httpx.AsyncClient(
                base_url="http://sandboxd",
                timeout=120,
                transport=httpx.AsyncHTTPTransport(uds=socket, limits=limits),
            ) as straight,
        ):
            report = await measure(args, through, straight, key, pid)
    print(json.dumps(report, indent=2))


async def measure(
    args: argparse.Namespace,
    through: httpx.AsyncClient,
    straight: httpx.AsyncClient,
    key: str,
    pid: int,
) -> dict[str, object]:
    auth = {"X-API-Key": key}
    creates = []

    async def create() -> httpx.Response:
        body = {"templateID": "base", "timeout": 600}
        return await through.post("/v2/sandboxes", json=body, headers=auth)

    for _ in range(10):
        begun = time.perf_counter()
        made = await create()
        creates.append((time.perf_counter() - begun) * 1000)
        made.raise_for_status()
        if len(creates) < 10:
            await through.delete(f"/sandboxes/{made.json()['sandboxID']}", headers=auth)
    box = made.json()
    there = data_headers(box)
    gateway, direct = Target("gateway", through, there), Target("sandboxd", straight, there)
    report: dict[str, object] = {"create_ms": round(statistics.median(creates), 1)}
    execs: dict[str, list[float]] = {"gateway": [], "sandboxd": []}
    for _ in range(args.rounds):  # in turns, so that other load hits both alike
        for target in (direct, gateway):
            execs[target.name] += await exec_ms(target, 1)
    report["exec_ms"] = {name: round(statistics.median(taken), 2) for name, taken in execs.items()}
    report["first_byte_ms"] = {
        target.name: round(statistics.median(await first_byte_ms(target, 100)), 2)
        for target in (direct, gateway)
    }
    before = rss_mb(pid)
    speeds: dict[str, list[tuple[float, float]]] = {"gateway": [], "sandboxd": []}
    for _ in range(3):
        for target in (direct, gateway):
            speeds[target.name].append(await transfer(target, args.mb))
    report["mb_per_s_up"] = {n: round(max(up for up, _ in s)) for n, s in speeds.items()}
    report["mb_per_s_down"] = {n: round(max(down for _, down in s)) for n, s in speeds.items()}
    report["memory_mb"] = {"before": round(before), "peak": round(rss_mb(pid, "VmHWM"))}
    if args.streams:
        boxes = [box] + [(await create()).json() for _ in range(3)]
        targets = [Target("gateway", through, data_headers(each)) for each in boxes]
        begun, ended, failures = await many_streams(targets, args.streams)
        for each in boxes[1:]:
            await through.delete(f"/sandboxes/{each['sandboxID']}", headers=auth)
        report["streams"] = {
            "asked": args.streams,
            "ended_well": ended,
            "begun_s": round(begun, 1),
            "failures": failures,
        }
        report["memory_mb_after_streams"] = round(rss_mb(pid, "VmHWM"))
    await through.delete(f"/sandboxes/{box['sandboxID']}", headers=auth)
    return report


if __name__ == "__main__":
    asyncio.run(main())
