"""What the session layer costs on top of the backend. Prints one JSON object.

    python -m tests.bench.bench_sessions

Needs redis-server on PATH; starts one of its own on a private socket. The backend is simulated and
answers at once, so every millisecond here is ours.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
import tracemalloc
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from sandboxes.sessions import SessionKey, reap
from sandboxes.sessions.binding import Binding
from sandboxes.testing.simulated import SimulatedProvider
from tests.sandboxes.sessions.world import BACKEND, KEY, RedisServer, Replica, Space, make_plan

ROUNDS = 2000
FLEET = 10_000
TEMPLATES = ["base", "release-7", "release-8"]


def percentiles(samples_s: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(samples_s, n=100)
    return {"p50_ms": round(cuts[49] * 1000, 3), "p95_ms": round(cuts[94] * 1000, 3)}


async def evalsha_calls(redis: Redis) -> int:
    stats: dict[str, Any] = await redis.info("commandstats")
    return int(stats["cmdstat_evalsha"]["calls"])


async def bound_resolve(redis: Redis) -> dict[str, Any]:
    replica = Replica(redis, SimulatedProvider(templates=TEMPLATES), Space())
    bound = await replica.resolve()
    bare: list[float] = []
    whole: list[float] = []
    before = await evalsha_calls(redis)
    cpu = time.process_time()
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        await replica.client.connect(bound.sandbox.id)
        middle = time.perf_counter()
        await replica.resolve()
        bare.append(middle - begun)
        whole.append(time.perf_counter() - middle)
    trips = (await evalsha_calls(redis) - before) / ROUNDS
    cpu = time.process_time() - cpu
    overhead = [w - b for w, b in zip(whole, bare, strict=True)]
    await replica.manager.aclose()
    return {
        **percentiles(overhead),
        "own_cpu_ms": round(cpu / ROUNDS * 1000, 3),
        "redis_round_trips": trips,
        "rounds": ROUNDS,
    }


async def first_resolve_by_many(redis: Redis) -> dict[str, Any]:
    provider = SimulatedProvider(templates=TEMPLATES, latency_s=0.06)
    replicas = [Replica(redis, provider, Space()) for _ in range(8)]
    key = SessionKey("tenant-1", "space-1", "contended")
    begun = time.perf_counter()
    await asyncio.gather(*(replicas[i % 8].resolve(key) for i in range(64)))
    took = time.perf_counter() - begun
    for replica in replicas:
        await replica.manager.aclose()
    return {"callers": 64, "creates": provider.calls["create"], "all_done_s": round(took, 3)}


async def turns_of_many_sessions(redis: Redis) -> dict[str, Any]:
    replica = Replica(redis, SimulatedProvider(templates=TEMPLATES), Space())

    async def turn(number: int) -> None:
        key = SessionKey("tenant-1", "space-1", f"turn-{number}")
        await replica.manager.begin_turn(key=key)
        await replica.resolve(key)
        await replica.manager.end_turn(key=key)

    begun = time.perf_counter()
    await asyncio.gather(*(turn(number) for number in range(200)))
    took = time.perf_counter() - begun
    await replica.manager.aclose()
    return {"sessions": 200, "all_done_s": round(took, 3)}


async def reconcile(redis: Redis) -> dict[str, Any]:
    await redis.flushall()
    provider = SimulatedProvider(templates=TEMPLATES)
    replica = Replica(redis, provider, Space())
    old = datetime.now(UTC) - timedelta(hours=5)
    pipeline = redis.pipeline(transaction=False)
    for number in range(FLEET):
        key = SessionKey(KEY.tenant, KEY.space, f"chat-{number}")
        sandbox = provider.start(make_plan().request(key, BACKEND), started_at=old)
        if number % 100 == 0:
            continue
        binding = Binding(
            key=key,
            backend=BACKEND,
            sandbox_id=sandbox.id,
            template="release-7",
            policy_revision="1",
            release="7",
            fell_back=False,
            has_token=True,
            timeout_s=1800,
            bound_at=old,
            started_at=old,
        )
        pipeline.set(replica.manager.names.of(key).binding, binding.to_json())
    await pipeline.execute()
    await replica.manager.store_since(now=old.timestamp())

    async def run(*, dry_run: bool) -> Any:
        return await reap(
            client=replica.client,
            sessions=replica.manager,
            backend=BACKEND,
            grace_s=3600,
            dry_run=dry_run,
        )

    begun = time.perf_counter()
    await run(dry_run=True)
    survey_s = time.perf_counter() - begun
    tracemalloc.start()
    await run(dry_run=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    begun = time.perf_counter()
    marked = await replica.mark_stale()
    stale_s = time.perf_counter() - begun
    begun = time.perf_counter()
    report = await run(dry_run=False)
    whole_s = time.perf_counter() - begun
    await replica.manager.aclose()
    return {
        "sandboxes": FLEET,
        "survey_s": round(survey_s, 3),
        "survey_peak_mib": round(peak / 2**20, 1),
        "survey_and_delete_s": round(whole_s, 3),
        "bound": report.bound,
        "deleted": report.deleted,
        "mark_space_stale_s": round(stale_s, 3),
        "marked": marked.marked,
    }


async def measure(socket: str) -> dict[str, Any]:
    async with Redis(unix_socket_path=socket) as redis:
        return {
            "bound_resolve_overhead": await bound_resolve(redis),
            "first_resolve_at_once": await first_resolve_by_many(redis),
            "turns_in_parallel": await turns_of_many_sessions(redis),
            "reconcile": await reconcile(redis),
        }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder), appendfsync="everysec")
        server.start()
        try:
            json.dump(asyncio.run(measure(server.socket)), sys.stdout, indent=2)
            print()
        finally:
            server.stop()


if __name__ == "__main__":
    main()
