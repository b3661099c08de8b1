"""What the REST API costs on top of the backend, and what one web process holds. Prints one JSON object.

    python tests/bench/bench_api.py [--quick]

Runs a sandboxd, a Redis and the console on uvicorn of its own. Bare calls and calls through REST alternate, so
that a busy machine slows both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
from redis.asyncio import Redis

from sandboxes import registry
from sandboxes.client import SandboxClient
from sandboxes.types import ExecRequest
from tests.console.api import server as servers
from tests.sandboxes import daemon as daemons
from tests.sandboxes.sessions.world import RedisServer

TRUE = ["true"]


class Bench:
    def __init__(
        self,
        server: servers.Server,
        http: httpx.AsyncClient,
        bare: SandboxClient,
        redis: Redis,
        *,
        quick: bool,
    ) -> None:
        self.server, self.http, self.bare, self.redis = server, http, bare, redis
        self.rounds = 50 if quick else 300
        self.waiting = 100 if quick else 1000
        self.sessions = 20 if quick else 200

    async def run(self) -> dict[str, Any]:
        await self.post("warm/resolve")
        return {
            **await self.overheads(),
            "first_resolve_by_64": await self.one_create(),
            "turns_at_once": await self.turns(),
            "waiting_commands": await self.wait(),
        }

    async def post(self, path: str, body: Any = None) -> dict[str, Any]:
        answer = await self.http.post(self.server.session(path), json=body)
        if answer.status_code != 200:
            raise RuntimeError(f"{path}: {answer.status_code} {answer.text[:300]}")
        return answer.json()["data"]  # type: ignore[no-any-return]

    async def overheads(self) -> dict[str, Any]:
        """Exec and the resolve of a bound session, each beside the bare call of the backend."""
        sandbox = await self.bare.connect((await self.post("bound/resolve"))["sandbox_id"])
        request = ExecRequest(argv=tuple(TRUE))
        await self.bare.run(sandbox, request)
        execs = await self.beside(
            lambda: self.bare.run(sandbox, request),
            lambda: self.post("bound/exec", {"argv": TRUE}),
        )
        before = await self.trips()
        resolves = await self.beside(
            lambda: self.bare.connect(sandbox.id, timeout_s=60),
            lambda: self.post("bound/resolve"),
        )
        resolves["redis_round_trips"] = round((await self.trips() - before) / self.rounds, 2)
        resolves["sql_queries"] = await self.queries()
        return {"exec": execs, "resolve_bound": resolves}

    async def beside(
        self, bare: Callable[[], Awaitable[Any]], rest: Callable[[], Awaitable[Any]]
    ) -> dict[str, Any]:
        took: dict[str, list[float]] = {"bare": [], "rest": []}
        for _ in range(self.rounds):
            for name, call in (("bare", bare), ("rest", rest)):
                begun = time.perf_counter()
                await call()
                took[name].append((time.perf_counter() - begun) * 1000)
        bares, rests = sorted(took["bare"]), sorted(took["rest"])
        over = sorted(r - b for r, b in zip(took["rest"], took["bare"], strict=True))
        return {
            "bare_median_ms": round(statistics.median(bares), 2),
            "rest_median_ms": round(statistics.median(rests), 2),
            "over_median_ms": round(statistics.median(over), 2),
            "p95_minus_bare_p95_ms": round(at(rests, 0.95) - at(bares, 0.95), 2),
            "fastest_over_ms": round(rests[0] - bares[0], 2),
        }

    async def trips(self) -> int:
        stats: dict[str, Any] = await self.redis.info("commandstats")
        return int(stats["cmdstat_evalsha"]["calls"])

    async def queries(self) -> int:
        """SQL statements of the whole web process (TESTED_QUERIES) in the three seconds after it asked
        for the key and the space anew, which it does every five."""
        end = time.monotonic() + 10
        before = self.counted()
        while self.counted() == before and time.monotonic() < end:
            await self.post("bound/resolve")
        before, end = self.counted(), time.monotonic() + 3
        while time.monotonic() < end:
            await self.post("bound/resolve")
        return self.counted() - before

    def counted(self) -> int:
        return Path(self.server.facts["queries"]).stat().st_size

    async def one_create(self) -> dict[str, Any]:
        begun = time.perf_counter()
        found = await asyncio.gather(*(self.post("contended/resolve") for _ in range(64)))
        return {
            "creates": [item["outcome"] for item in found].count("created"),
            "sandboxes": len({item["sandbox_id"] for item in found}),
            "all_done_s": round(time.perf_counter() - begun, 2),
        }

    async def turns(self) -> dict[str, Any]:
        """begin, resolve, exec and end of many new sessions at once."""
        errors: list[str] = []

        async def turn(number: int) -> None:
            name = f"turn-{number}"
            try:
                await self.post(f"{name}/turns")
                await self.post(f"{name}/resolve", {"wait_s": 120})
                done = await self.post(f"{name}/exec", {"argv": TRUE})
                ended = await self.http.delete(self.server.session(f"{name}/turns"))
                assert done["exit_code"] == 0
                assert ended.json()["data"]["refs"] == 0
            except (RuntimeError, httpx.HTTPError, AssertionError) as error:
                errors.append(f"{name}: {type(error).__name__} {error}")

        begun = time.perf_counter()
        await asyncio.gather(*(turn(number) for number in range(self.sessions)))
        took = time.perf_counter() - begun
        for start in range(0, self.sessions, 20):
            numbers = range(start, min(start + 20, self.sessions))
            await asyncio.gather(
                *(self.http.delete(self.server.session(f"turn-{number}")) for number in numbers)
            )
        return {
            "sessions": self.sessions,
            "errors": len(errors),
            "first_errors": errors[:3],
            "all_done_s": round(took, 1),
        }

    async def wait(self) -> dict[str, Any]:
        """Many commands that wait, in ten sessions, in one web process."""
        names = [f"wait-{number}" for number in range(10)]
        for name in names:
            await self.post(f"{name}/resolve")
        before = self.memory_mb()
        seconds = 300
        wish = {"argv": ["sleep", str(seconds)], "timeout_s": seconds * 2}
        tasks = []
        for number in range(self.waiting):
            name = names[number % len(names)]
            tasks.append(asyncio.create_task(self.post(f"{name}/exec", wish)))
            if number % 20 == 19:
                await asyncio.sleep(0.05)
        running = await self.until_running(names, 100)
        peak = self.memory_mb()
        meanwhile = []
        for _ in range(20):
            begun = time.perf_counter()
            await self.post("bound/resolve")
            meanwhile.append((time.perf_counter() - begun) * 1000)
        threads = self.threads()
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        failed = [str(e) for e in ended if isinstance(e, RuntimeError | httpx.HTTPError)]
        for name in names:
            await self.http.delete(self.server.session(name))
        return {
            "asked": self.waiting,
            "running": running,
            "failed": len(failed),
            "first_failure": failed[:1],
            "web_memory_before_mb": before,
            "web_memory_mb": peak,
            "web_threads": threads,
            "resolve_meanwhile_ms": round(statistics.median(meanwhile), 1),
        }

    async def until_running(self, names: list[str], wait_s: float) -> int:
        """How many commands run, as the sandboxes see it, once all do or time is up."""
        end = time.monotonic() + wait_s
        while True:
            counts = [
                await self.post(f"{name}/exec", {"argv": ["pgrep", "-xc", "sleep"]})
                for name in names
            ]
            running = sum(int(count["stdout"]) for count in counts)
            if running >= self.waiting or time.monotonic() > end:
                return running
            await asyncio.sleep(1)

    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.server.process.pid}/task").iterdir()))

    def memory_mb(self) -> int:
        text = Path(f"/proc/{self.server.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+)", text)
        assert found is not None
        return int(found[1]) // 1024


def at(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


async def measure(folder: Path, quick: bool) -> dict[str, Any]:
    (folder / "redis").mkdir()
    redis_server = RedisServer(folder / "redis", appendfsync="everysec")
    redis_server.start()
    try:
        with daemons.start() as daemon:
            with servers.start(
                folder,
                redis_socket=redis_server.socket,
                sandboxd_socket=str(daemon.socket),
                SKILLYARD_API_RATE_EXEC="10000,10000",
                SKILLYARD_API_COMMANDS_PER_SPACE="5000",
                TESTED_QUERIES=str(folder / "queries"),
            ) as server:
                return await with_clients(server, daemon, redis_server.socket, quick)
    finally:
        redis_server.stop()


async def with_clients(
    server: servers.Server, daemon: daemons.Daemon, redis_socket: str, quick: bool
) -> dict[str, Any]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
    async with (
        httpx.AsyncClient(
            base_url=server.url, headers=server.headers(), timeout=600, limits=limits
        ) as http,
        await registry.open_client("local", {"socket": str(daemon.socket)}) as bare,
        Redis(unix_socket_path=redis_socket) as redis,
    ):
        bench = Bench(server, http, bare, redis, quick=quick)
        try:
            return await bench.run()
        finally:
            for name in ("warm", "bound", "contended"):
                await http.delete(server.session(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    if reason := daemons.why_not():
        sys.exit(reason)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 16384), hard), hard))
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(measure(Path(folder), args.quick))
    json.dump(figures, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
