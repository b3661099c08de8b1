"""Run every bench_*.py beside this file and write their figures into one JSON file.

Each is a program that prints one JSON object last. Usage: run.py [NAME ...] [--output FILE].
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def main() -> int:
    benches = {path.stem.removeprefix("bench_"): path for path in sorted(HERE.glob("bench_*.py"))}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(benches)}")
    parser.add_argument("--output", type=Path, help="default: bench-TIME.json here")
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in benches]
    if unknown:
        parser.error(f"there is no bench {unknown[0]!r}; there are: {', '.join(benches)}")
    started = datetime.now(UTC)
    output = args.output or Path(f"bench-{started:%Y%m%d-%H%M%S}.json")
    figures = {name: measure(benches[name]) for name in args.names or benches}
    report = {"started_at": started.isoformat(timespec="seconds"), **machine(), "benches": figures}
    output.write_text(json.dumps(report, indent=2) + "\n")
    print(f"Written to {output}.")
    return 1 if any("error" in result for result in figures.values()) else 0


def measure(path: Path) -> dict[str, Any]:
    print(f"{path.name} …", file=sys.stderr, flush=True)
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, path],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    took = round(time.monotonic() - begun, 1)
    if done.returncode != 0:
        return {"error": f"{path.name} exited with {done.returncode}", "took_s": took}
    figures = last_object(done.stdout)
    if figures is None:
        return {"error": f"{path.name} printed no JSON object last", "took_s": took}
    for name, value in figures.items():
        print(f"  {name:36} {value}")
    return {**figures, "took_s": took}


def last_object(text: str) -> dict[str, Any] | None:
    """The JSON object that the text ends with, on one line or on several."""
    lines = text.strip().splitlines()
    for start in range(len(lines) - 1, -1, -1):
        if lines[start].startswith("{"):
            try:
                found = json.loads("\n".join(lines[start:]))
            except ValueError:
                return None
            return found if isinstance(found, dict) else None
    return None


def machine() -> dict[str, Any]:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "commit": commit,
        "cpus": os.cpu_count(),
        "memory_gb": round(memory / 1e9),
        "kernel": platform.release(),
        "load_before": os.getloadavg()[0],
    }


if __name__ == "__main__":
    sys.exit(main())
