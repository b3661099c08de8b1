"""What builds cost: `python tests/bench/bench_builds.py` prints one JSON object.

A sandboxd, a Redis and a database of its own; the network for the packages. Times are seconds unless the name
says milliseconds.

    cold_build_s          numpy and pandas into an empty space, step by step in `cold_steps_s`
    incremental_build_s   one small skill more, on top of that release
    upgrade_build_s       a new version of the numpy and pandas skill on top of that release
    rebuild_s             both skills once more from the base template
    reuse_ms              the first set again: an identical release, no sandbox (median of 20)
    diff_500_ms           two releases with 500 packages each (median of 50)
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))


def main() -> None:
    from tests.sandboxes import daemon
    from tests.sandboxes.sessions.world import RedisServer

    with tempfile.TemporaryDirectory() as folder, daemon.start() as sandboxd:
        redis = RedisServer(Path(folder))
        redis.start()
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "console.settings",
            "DATABASE_URL": f"sqlite:///{folder}/bench.sqlite3",
            "REDIS_URL": f"unix://{redis.socket}",
            "SKILLYARD_DATA_DIR": folder,
            "SKILLYARD_SECRET_KEY": "only-for-the-bench-" + "0" * 40,
            "SKILLYARD_FIELD_KEYS": "VGhpcy1rZXktaXMtb25seS1mb3ItdGVzdHMtMDAwMDA=",
            "SKILLYARD_LOG_LEVEL": "WARNING",
        }
        try:
            import django
            from django.core.management import call_command

            django.setup()
            call_command("migrate", verbosity=0)
            figures = measure_builds(str(sandboxd.socket)) | {"diff_500_ms": measure_diff()}
        finally:
            redis.stop()
    print(json.dumps(figures, indent=2))


def measure_builds(socket: str) -> dict[str, Any]:
    from console.tenants.models import Space
    from skills import services
    from skills.models import Skill
    from skills.plan import StepKind
    from skills.services import builds

    builds.dispatch = lambda build_id: None  # type: ignore[assignment]
    from tests.skills.world import ACTOR, add_skill, log_of, make_space, run

    space = make_space("local", socket=socket)
    script = {"scripts/mean.py": "import pandas\nprint(pandas.Series([1, 2]).mean())\n"}
    steps = {StepKind.PIP: ["numpy", "pandas"], StepKind.CHECK: ["python scripts/mean.py"]}
    first = add_skill(space, "numbers", script, steps)

    def built(**options: Any) -> tuple[Any, float]:
        begun = time.monotonic()
        build = run(
            services.request_build(space=Space.objects.get(pk=space.pk), actor=ACTOR, **options)
        )
        took = time.monotonic() - begun
        if build.state != "succeeded":
            raise SystemExit(log_of(build))
        return build, took

    cold, cold_s = built(add=[first])
    figures: dict[str, Any] = {
        "cold_build_s": round(cold_s, 2),
        "cold_steps_s": _step_seconds(cold),
        "cold_installer_says": [
            line.strip()
            for line in log_of(cold).splitlines()
            if line.startswith(("Resolved", "Prepared", "Installed", "Bytecode"))
        ],
        "release_bytes": cold.result.size_bytes,
    }
    small = add_skill(space, "small", {"scripts/a.py": "print(1)\n"}, {})
    more, figures["incremental_build_s"] = built(add=[small])
    figures["incremental_release_bytes"] = more.result.size_bytes
    second = add_skill(space, "numbers", {**script, "notes.md": "more\n"}, steps)
    upgraded, figures["upgrade_build_s"] = built(add=[second])
    figures["upgrade_steps_s"] = _step_seconds(upgraded)
    figures["upgrade_release_bytes"] = upgraded.result.size_bytes
    rebuilt, figures["rebuild_s"] = built(trigger="compact", from_base=True)
    figures["rebuild_steps_s"] = _step_seconds(rebuilt)
    both = [second, small]
    reuse = []
    for _ in range(10):
        for wanted in ([first], both):
            again, took = built(versions=wanted)
            assert again.reused_release is not None, log_of(again)
            assert (again.sandbox_id, again.parent_id) == ("", None)
            reuse.append(took * 1000)
    figures["reuse_ms"] = round(statistics.median(reuse), 1)
    figures["reuse_max_ms"] = round(max(reuse), 1)
    assert Skill.objects.count() == 2
    return {k: round(v, 2) if isinstance(v, float) else v for k, v in figures.items()}


def measure_diff() -> float:
    from skills.diff import Manifest, SkillEntry, compare

    def manifest(number: int) -> Manifest:
        pip = {f"package-{n}": f"{n}.{number if n % 5 == 0 else 0}" for n in range(500)}
        files = {f"scripts/{n}.py": f"{n}{number if n % 5 == 0 else 0}" for n in range(500)}
        entry = SkillEntry(digest=str(number), version=f"#{number}", plan_digest="", files=files)
        return Manifest(
            skills={"big": entry}, packages={"pip": {"big": pip}, "npm": {}, "apt": dict(pip)}
        )

    before, after = manifest(1), manifest(2)
    times = []
    for _ in range(50):
        begun = time.perf_counter()
        compare(before, after)
        times.append((time.perf_counter() - begun) * 1000)
    return round(statistics.median(times), 2)


def _step_seconds(build: Any) -> dict[str, float]:
    from datetime import datetime

    return {
        step["step"]: round(
            (
                datetime.fromisoformat(step["finished_at"])
                - datetime.fromisoformat(step["started_at"])
            ).total_seconds(),
            2,
        )
        for step in build.steps
        if step["finished_at"]
    }


if __name__ == "__main__":
    main()
