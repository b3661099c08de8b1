"""What a list page costs on the server when the lists are long. Prints one JSON object.

    python tests/bench/bench_lists.py [--scale 1.0] [--rounds 15] [--explain]

Seeds 10,000 sessions, 10,000 builds, 500 releases, 2,000 skill versions, 50,000 audit rows, 5,000 reports and
1,000 keys in a database of its own (SQLite in a temporary folder, or BENCH_DATABASE_URL: an empty PostgreSQL
database), and asks for each page in-process as a tenant's admin. Milliseconds are
medians; on a busy machine those of CPU are the truer ones.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import django
from django.core.management import call_command

FOLDER = tempfile.TemporaryDirectory(prefix="skillyard-bench-")
MOST_MS, MOST_QUERIES = 150.0, 12
SPACES = 40


def set_up() -> None:
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "console.settings",
        "SKILLYARD_DATA_DIR": FOLDER.name,
        "SKILLYARD_SECRET_KEY": "bench" * 10,
        "SKILLYARD_FIELD_KEYS": "VGhpcy1rZXktaXMtb25seS1mb3ItdGVzdHMtMDAwMDA=",
        "SKILLYARD_ALLOWED_HOSTS": "testserver",
        "SKILLYARD_LOG_LEVEL": "ERROR",
        "DATABASE_URL": os.environ.get("BENCH_DATABASE_URL", f"sqlite:///{FOLDER.name}/db.sqlite3"),
    }
    (Path(FOLDER.name) / "console").mkdir()
    django.setup()
    call_command("migrate", verbosity=0)
    call_command("collectstatic", verbosity=0, interactive=False)


def seed(scale: float) -> Any:
    """The tenant's admin, and the largest space."""
    from console.audit.models import AuditEntry
    from console.fleet.models import Backend, ReconcileReport, Session
    from console.policies.models import NetworkPolicyRevision
    from console.tenants.models import ApiKey, Membership, Space, Tenant, User
    from skills.models import (
        Build,
        BuildSkill,
        PlanRevision,
        Release,
        ReleaseSkill,
        Skill,
        SkillVersion,
    )

    chance = random.Random(1)  # noqa: S311  the same database at every run
    now = django.utils.timezone.now()

    def many(count: int) -> range:
        return range(max(int(count * scale), 1))

    tenant = Tenant.objects.create(slug="bench", name="Bench")
    backends = Backend.objects.bulk_create(
        Backend(tenant=tenant, name=f"backend-{n}", provider="local", settings={"socket": f"/{n}"})
        for n in range(4)
    )
    spaces = Space.objects.bulk_create(
        Space(tenant=tenant, slug=f"space-{n}", name=f"Space {n}", backend=chance.choice(backends))
        for n in range(SPACES)
    )
    # Half of everything is in one space: an average would hide what its pages cost.
    crowded = [spaces[0] if chance.random() < 0.5 else chance.choice(spaces) for _ in range(1000)]
    policies = NetworkPolicyRevision.objects.bulk_create(
        NetworkPolicyRevision(space=space, number=n) for space in spaces for n in (1, 2, 3)
    )
    admin = User.objects.create_user("bench-admin")
    Membership.objects.create(user=admin, tenant=tenant, role="admin")
    people = User.objects.bulk_create(User(username=f"person-{n}") for n in many(300))
    Membership.objects.bulk_create(
        Membership(user=user, tenant=tenant, space=chance.choice(spaces), role="operator")
        for user in people
    )
    skills = Skill.objects.bulk_create(
        Skill(tenant=tenant, name=f"skill-{n:04}") for n in many(500)
    )
    inspection = {"files": [{"path": f"scripts/{n}.py", "size": n} for n in range(100)]}
    versions = SkillVersion.objects.bulk_create(
        (
            SkillVersion(
                skill=skill,
                number=number,
                digest=f"{skill.pk}{number}",
                description="Reads tables out of documents and checks them. " * 8,
                size_bytes=chance.randrange(10**7),
                file_count=100,
                inspection=inspection,
            )
            for skill in skills
            for number in (1, 2, 3, 4)
        ),
        batch_size=500,
    )
    plans = PlanRevision.objects.bulk_create(
        PlanRevision(version=version, number=1, content={}) for version in versions
    )
    report = {"checks": [{"name": f"check {n}", "output": "x" * 200} for n in range(20)]}
    builds = Build.objects.bulk_create(
        (
            Build(
                space=chance.choice(crowded),
                state=chance.choice(["failed", "succeeded", "succeeded", "cancelled"]),
                report=report,
                created_by=admin,
                started_at=now - timedelta(minutes=n + 2),
                finished_at=now - timedelta(minutes=n),
            )
            for n in many(10_000)
        ),
        batch_size=500,
    )
    releases = Release.objects.bulk_create(
        Release(
            space=spaces[0] if n % 2 else chance.choice(spaces[1:]),
            generation=n + 1,
            backend=chance.choice(backends),
            fingerprint="f",
            planned_name=f"planned-{n}",
            snapshot_id=f"snap-{n}",
            state="superseded",
            size_bytes=chance.randrange(10**9),
            packages={"pip": {"all": {f"package-{m}": "1.0" for m in range(60)}}},
        )
        for n in many(500)
    )
    for model, key, rows in ((BuildSkill, "build", builds), (ReleaseSkill, "release", releases)):
        model.objects.bulk_create(
            (
                model(position=n, version=versions[at], plan=plans[at], **{key: row})
                for row in rows
                for n in range(6)
                for at in [chance.randrange(len(versions))]
            ),
            batch_size=500,
        )
    newest = {release.space_id: release for release in releases}
    for space in spaces:
        space.current_release = newest.get(space.pk)
        space.save()
    sessions = [
        Session(
            space=space,
            session_id=f"conversation-{n:06}",
            state=chance.choice(["active", "paused", "paused", "lost", "destroyed"]),
            backend_id=space.backend_id,
            sandbox_id=f"box-{n}",
            release=chance.choice(releases),
            policy=chance.choice(policies),
            created_by=f"key sky_{n % 50}",
        )
        for n in many(10_000)
        for space in [chance.choice(crowded)]
    ]
    Session.objects.bulk_create(sessions, batch_size=500)
    for n, session in enumerate(sessions):
        session.used_at = now - timedelta(minutes=chance.randrange(n + 1), seconds=n % 60)
    Session.objects.bulk_update(sessions, ["used_at"], batch_size=500)
    AuditEntry.objects.bulk_create(
        (
            AuditEntry(
                tenant=tenant,
                space=chance.choice(crowded),
                actor=f"key sky_{n % 50}",
                action=chance.choice(["session.exec", "key.issue", "release.delete"]),
                target=f"conversation-{n:06}",
                outcome=chance.choice(["done", "done", "done", "denied"]),
                details={"n": n},
                created_at=now - timedelta(minutes=n),
            )
            for n in many(50_000)
        ),
        batch_size=1000,
    )
    ReconcileReport.objects.bulk_create(
        (
            ReconcileReport(
                backend=chance.choice(backends),
                dry_run=False,
                actor="system",
                finished_at=now,
                findings=[{"reason": "x" * 100}] * 20,
            )
            for _ in many(5_000)
        ),
        batch_size=500,
    )
    ApiKey.objects.bulk_create(
        ApiKey(tenant=tenant, name=f"key {n}", prefix=f"sky_{n:06}", scopes=["view"])
        for n in many(1_000)
    )
    if django.db.connection.vendor == "postgresql":
        with django.db.connection.cursor() as cursor:
            cursor.execute("ANALYZE")
    return admin, spaces[0]


def pages(space: Any) -> Iterator[tuple[str, str]]:
    """What people ask for: as it opens, filtered, searched, in another order, and the last page."""
    from django.urls import reverse

    for name in ("spaces", "catalog", "sessions", "builds", "releases", "backends"):
        yield name, reverse(f"web:{name}")
    for name in ("reconcile", "members", "keys", "audit"):
        yield name, reverse(f"web:{name}")
    for name in ("space-sessions", "space-builds", "space-releases"):
        yield name, reverse(f"web:{name}", args=[space.pk])
    for label, name, query in (
        ("sessions, last page", "sessions", "?page=200"),
        ("sessions, 200 a page", "sessions", "?size=200"),
        ("sessions, searched", "sessions", "?q=0042"),
        ("sessions, paused", "sessions", "?state=paused"),
        ("sessions, drifted", "sessions", "?drift=any"),
        ("sessions, by space", "sessions", "?sort=space"),
        ("sessions, by release", "sessions", "?sort=-release"),
        ("builds, last page", "builds", "?page=200"),
        ("builds, of a skill", "builds", "?skill=skill-0007"),
        ("builds, searched", "builds", "?q=broke"),
        ("catalog, all versions", "catalog", "?versions=all&sort=-size_bytes"),
        ("audit, last page", "audit", "?page=1000"),
        ("audit, denied", "audit", "?outcome=denied"),
        ("audit, searched", "audit", "?q=000042"),
        ("audit, of a space", "audit", f"?space={space.pk}"),
        ("audit, by actor", "audit", "?sort=actor"),
    ):
        yield label, reverse(f"web:{name}") + query


def measure(client: Any, url: str, rounds: int) -> dict[str, float]:
    """Medians of a request's milliseconds, on the clock and of this process alone, and its queries."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as captured:
        assert client.get(url).status_code == 200, url
    queries = len(captured)
    wall, cpu = [], []
    for _ in range(rounds):
        begun = time.perf_counter(), time.process_time()
        client.get(url)
        wall.append((time.perf_counter() - begun[0]) * 1000)
        cpu.append((time.process_time() - begun[1]) * 1000)
    return {
        "ms": round(statistics.median(wall), 1),
        "cpu_ms": round(statistics.median(cpu), 1),
        "queries": queries,
    }


def explain(client: Any, url: str) -> None:
    """To stderr: how the database does what takes it longest."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as captured:
        client.get(url)
    slowest = max(captured.captured_queries, key=lambda query: float(query["time"]))
    print(f"\n{url}: {slowest['time']} s\n{slowest['sql'][:200]} …", file=sys.stderr)
    how = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
    with connection.cursor() as cursor:
        cursor.execute(f"{how} {slowest['sql']}".replace("%", "%%"))
        for row in cursor.fetchall():
            print("  ", row[-1], file=sys.stderr)


def export(client: Any, url: str) -> dict[str, float]:
    """Seconds, lines, and the most memory that it held at once (found in a run of its own: that is slow)."""
    begun = time.perf_counter()
    found = lines(client, url)
    took = time.perf_counter() - begun
    tracemalloc.start()
    lines(client, url)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"s": round(took, 2), "lines": found, "peak_mb": round(peak / 1e6, 1)}


def lines(client: Any, url: str) -> int:
    from asgiref.sync import async_to_sync

    response = client.get(url)

    async def counted() -> int:
        return sum([chunk.count(b"\n") async for chunk in response.streaming_content])

    return async_to_sync(counted)()


def bulk(client: Any) -> dict[str, float]:
    """What a person waits for when all sessions are chosen: freezing them, and the page that asks."""
    from django.urls import reverse

    begun = time.perf_counter()
    form = {"list": "sessions", "action": "session.destroy", "all": "1"}
    response = client.post(reverse("web:bulk"), form)
    chosen = time.perf_counter()
    assert client.get(response.headers["Location"]).status_code == 200
    return {"choose_s": round(chosen - begun, 2), "ask_s": round(time.perf_counter() - chosen, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--explain", action="store_true")
    args = parser.parse_args()
    set_up()
    from django.test import Client

    begun = time.perf_counter()
    admin, space = seed(args.scale)
    print(f"seeded in {time.perf_counter() - begun:.1f} s", file=sys.stderr)
    client = Client()
    client.force_login(admin)
    client.get("/me/")
    exports = {
        f"export of {name}": export(client, f"/{name}/?format=csv")
        for name in ("sessions", "builds", "audit")
    }
    figures: dict[str, Any] = {"all sessions at once": bulk(client)}
    for label, url in pages(space):
        figures[label] = of = measure(client, url, args.rounds)
        line = (
            f"{label:26} {of['ms']:7.1f} ms {of['cpu_ms']:7.1f} ms of CPU {of['queries']:3} queries"
        )
        print(line, file=sys.stderr)
        if args.explain:
            explain(client, url)
    slow = [name for name, of in figures.items() if of.get("ms", 0) > MOST_MS]
    busy = [name for name, of in figures.items() if of.get("queries", 0) > MOST_QUERIES]
    database = django.db.connection.vendor
    print(
        json.dumps(
            {"database": database, "slow": slow, "busy": busy, **exports, **figures}, indent=1
        )
    )


if __name__ == "__main__":
    main()
