"""What the fleet's services cost. Prints one JSON object.

    python -m tests.bench.bench_fleet

Reconciles 10,000 simulated sandboxes with their rows, bindings and builds; then, where root, runc and the
base template are here, has 200 sessions begin, resolve, run a command and end at once on a sandboxd of
its own. Needs redis-server. Uses a database file of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import sys
import tempfile
import time
import tracemalloc
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sandboxes.sandboxd.templates.commands import default_templates_dir

FLEET = 10_000
SESSIONS = 200
AT_ONCE = 200


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-fleet-") as folder:
        os.environ["DJANGO_SETTINGS_MODULE"] = "console.settings"
        os.environ["DATABASE_URL"] = f"sqlite:///{folder}/bench.sqlite3"
        os.environ["REDIS_URL"] = f"unix://{folder}/redis.sock"
        os.environ.setdefault("SKILLYARD_TEMPLATES_DIR", str(default_templates_dir()))
        os.environ["SKILLYARD_DATA_DIR"] = folder
        os.environ["SKILLYARD_SECRET_KEY"] = "for-benches-" * 5
        os.environ["SKILLYARD_FIELD_KEYS"] = "VGhpcy1rZXktaXMtb25seS1mb3ItdGVzdHMtMDAwMDA="
        os.environ.setdefault("SKILLYARD_LOG_LEVEL", "ERROR")
        import django

        django.setup()
        from django.core.management import call_command

        from tests.sandboxes.sessions.world import RedisServer

        call_command("migrate", verbosity=0)
        server = RedisServer(Path(folder), appendfsync="everysec")
        server.start()
        try:
            figures = {"reconcile": reconcile_many(), "sessions": sessions_at_once()}
        finally:
            server.stop()
        json.dump(figures, sys.stdout, indent=2)
        print()


def reconcile_many() -> dict[str, Any]:
    from asgiref.sync import async_to_sync

    from sandboxes.registry import PROVIDERS, Provider
    from tests.console.fleet import memory_backend
    from tests.console.fleet.conftest import make_space

    PROVIDERS[memory_backend.PROVIDER] = Provider(
        memory_backend.PROVIDER, "Memory", "tests.console.fleet.memory_backend"
    )
    space = make_space(memory_backend.PROVIDER, account="bench")
    return async_to_sync(_reconcile_many)(space)


async def _reconcile_many(space: Any) -> dict[str, Any]:
    from console.fleet.runtime import Runtime
    from sandboxes.types import SandboxState
    from tests.console.fleet.memory_backend import account

    old = datetime.now(UTC) - timedelta(hours=5)
    async with Runtime() as runtime:
        await runtime.sessions.store_since(now=old.timestamp())
        await _populate(runtime, space, old)
        first = await _timed(runtime, space, dry_run=True)
        quiet = await _timed(runtime, space, dry_run=True)
        for sandbox in account("bench").live()[: FLEET // 2]:
            account("bench").set_state(sandbox.id, SandboxState.PAUSED)
        half_paused = await _timed(runtime, space, dry_run=True)
        tracemalloc.start()
        await _timed(runtime, space, dry_run=True)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        real = await _timed(runtime, space, dry_run=False)
    return {
        "sandboxes": FLEET,
        "first_run": first,
        "quiet_run": quiet,
        "half_of_them_paused_since": half_paused,
        "with_100_deletions": real,
        "peak_mib": round(peak / 2**20, 1),
    }


async def _timed(runtime: Any, space: Any, *, dry_run: bool) -> dict[str, Any]:
    from console.audit.services import SYSTEM
    from console.fleet.reconcile import reconcile

    begun, cpu = time.perf_counter(), time.process_time()
    report = await reconcile(runtime=runtime, backend=space.backend, dry_run=dry_run, actor=SYSTEM)
    took, cpu = time.perf_counter() - begun, time.process_time() - cpu
    assert report is not None, "the lock is free"
    assert report.aborted == "", report.aborted
    assert report.seen >= FLEET - 100
    return {
        "took_s": round(took, 2),
        "own_cpu_s": round(cpu, 2),
        "bound": report.bound,
        "orphaned": report.orphaned,
        "corrected": report.corrected,
        "deleted": report.deleted,
    }


async def _populate(runtime: Any, space: Any, old: datetime) -> None:
    """9,900 bound sessions with rows, and 100 sandboxes that are nobody's."""
    from console.fleet import sessions
    from console.fleet.models import Session
    from console.policies.models import NetworkPolicyRevision
    from sandboxes.sessions import Binding
    from tests.console.fleet.memory_backend import account

    policy = await NetworkPolicyRevision.objects.aget(space=space)
    rows = []
    pipeline = runtime.redis.pipeline(transaction=False)
    plan = await sessions.sandbox_plan(sessions.session_key(space, "any"), pause_on_idle=True)
    for number in range(FLEET):
        key = sessions.session_key(space, f"talk-{number}")
        sandbox = account("bench").start(plan.request(key, space.backend_id), started_at=old)
        if number % 100 == 0:
            continue
        binding = Binding(
            key=key,
            backend=space.backend_id,
            sandbox_id=sandbox.id,
            template="base",
            policy_revision=str(policy.number),
            release="",
            fell_back=False,
            has_token=True,
            timeout_s=1800,
            bound_at=old,
            started_at=old,
        )
        pipeline.set(runtime.sessions.names.of(key).binding, binding.to_json())
        rows.append(
            Session(
                space=space,
                session_id=key.session,
                backend=space.backend,
                sandbox_id=sandbox.id,
                policy=policy,
                state_changed_at=old,
            )
        )
    await pipeline.execute()
    await Session.objects.abulk_create(rows, batch_size=500)


def sessions_at_once() -> dict[str, Any]:
    from asgiref.sync import async_to_sync

    from console.tenants.models import Space
    from tests.console.fleet.conftest import make_space
    from tests.sandboxes import daemon as daemons

    if reason := daemons.why_not():
        return {"skipped": reason}
    with daemons.start() as daemon:
        space = make_space("local", slug="real", socket=str(daemon.socket))
        Space.objects.filter(pk=space.pk).update(base_template=daemons.base_template())
        figures = async_to_sync(_sessions_at_once)(space)
        daemon.stop()
        figures["left_on_the_host"] = daemons.leftovers(daemon)
    return figures


async def _sessions_at_once(space: Any) -> dict[str, Any]:
    from console.audit.services import SYSTEM
    from console.fleet import sessions
    from console.fleet.runtime import Runtime
    from console.fleet.workspace import command_argv
    from sandboxes.types import ExecRequest

    stages: dict[str, list[float]] = {"resolve": [], "exec": [], "turn": []}
    errors: list[str] = []
    slots = asyncio.Semaphore(AT_ONCE)

    async def turn(runtime: Runtime, name: str) -> None:
        key = sessions.session_key(space, name)
        async with slots:
            begun = time.perf_counter()
            try:
                await runtime.sessions.begin_turn(key=key)
                live = await sessions.resolve(
                    runtime=runtime, space=space, session_id=name, actor=SYSTEM
                )
                stages["resolve"].append(time.perf_counter() - begun)
                middle = time.perf_counter()
                request = ExecRequest(argv=command_argv(("echo", name)), cwd="/workspace")
                result = await live.client.run(live.sandbox, request)
                stages["exec"].append(time.perf_counter() - middle)
                if result.stdout.decode().strip() != name:
                    errors.append(f"{name}: {result}")
            except Exception as error:
                errors.append(f"{name}: {type(error).__name__}: {error}")
            else:
                await runtime.sessions.end_turn(key=key)
            stages["turn"].append(time.perf_counter() - begun)

    names = [f"talk-{number}" for number in range(SESSIONS)]
    async with Runtime() as runtime:
        begun, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(turn(runtime, name) for name in names))
        cold, cold_cpu = time.perf_counter() - begun, time.process_time() - cpu
        cold_stages = {stage: _percentiles(values) for stage, values in stages.items()}
        for values in stages.values():
            values.clear()
        begun, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(turn(runtime, name) for name in names))
        warm, warm_cpu = time.perf_counter() - begun, time.process_time() - cpu
        await asyncio.gather(*(_end(runtime, space, name) for name in names))
    return {
        "sessions": SESSIONS,
        "errors": errors[:10],
        "first_turns_s": round(cold, 2),
        "first_turns_own_cpu_s": round(cold_cpu, 2),
        "first": cold_stages,
        "second_turns_s": round(warm, 2),
        "second_turns_own_cpu_s": round(warm_cpu, 2),
        "second": {stage: _percentiles(values) for stage, values in stages.items()},
        "own_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


async def _end(runtime: Any, space: Any, name: str) -> None:
    from console.audit.services import SYSTEM
    from console.fleet import sessions

    await sessions.destroy(runtime=runtime, space=space, session_id=name, actor=SYSTEM)


def _percentiles(samples_s: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(samples_s, n=100)
    return {"p50_ms": round(cuts[49] * 1000, 1), "p95_ms": round(cuts[94] * 1000, 1)}


if __name__ == "__main__":
    main()
