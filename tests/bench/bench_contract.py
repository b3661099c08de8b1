"""Times the contract against the `local` backend. Prints one JSON object; asserts nothing.

    python -m tests.bench.bench_contract [--socket PATH] [--quick]

Without a socket it runs a sandboxd of its own, on a data directory of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from sandboxes import registry
from sandboxes.client import SandboxClient
from sandboxes.network import CLOSED
from sandboxes.types import CreateRequest, ExecRequest, Sandbox, TimeoutPolicy
from tests.sandboxes import daemon as daemons

MIB = 1024 * 1024
TRUE = ExecRequest(argv=("true",))


class Bench:
    def __init__(self, client: SandboxClient, template: str, *, quick: bool) -> None:
        self.client = client
        self.template = template
        self.quick = quick
        self.rounds = 5 if quick else 20

    async def create(self, template: str | None = None) -> Sandbox:
        return await self.client.create(
            CreateRequest(
                template=template or self.template,
                network=CLOSED,
                timeout=TimeoutPolicy(timeout_s=600),
                metadata={"bench": "contract"},
            )
        )

    async def run(self) -> dict[str, Any]:
        figures: dict[str, Any] = {"rounds": self.rounds}
        figures |= await self.execs()
        figures |= await self.starts()
        figures["creates_per_s"] = {
            str(workers): await self.creates_per_s(workers) for workers in (1, 4, 8)
        }
        figures |= await self.throughput()
        return figures

    async def execs(self) -> dict[str, Any]:
        box = await self.create()
        await self.client.run(box, TRUE)
        times = [await timed(lambda: self.client.run(box, TRUE)) for _ in range(50)]
        await self.client.delete(box.id)
        return {"exec_ms": summary(times)}

    async def starts(self) -> dict[str, Any]:
        """Create to the result of the first exec, from the base and from snapshots of two sizes."""
        assert self.client.snapshots is not None
        figures: dict[str, Any] = {"start_from_base_ms": await self.start(None)}
        large = 100 if self.quick else 1024
        medians = []
        for size_mib in (10, large):
            box = await self.create()
            fill = f"head -c {size_mib * MIB} /dev/urandom > /opt/data"
            await self.client.run(
                box, ExecRequest(argv=("sh", "-c", fill), user="root", timeout_s=300)
            )
            store = self.client.snapshots
            begun = time.perf_counter()
            snapshot = await store.create(box.id, name=f"bench-{size_mib}")
            taken_ms = (time.perf_counter() - begun) * 1000
            await self.client.delete(box.id)
            started = await self.start(snapshot.id)
            medians.append(started["median"])
            figures[f"snapshot_{size_mib}_mib_ms"] = round(taken_ms, 1)
            figures[f"start_from_{size_mib}_mib_ms"] = started
            if size_mib == large:
                figures["snapshot_ms_per_100_mib"] = round(taken_ms * 100 / size_mib, 1)
            await store.delete(snapshot.id)
        figures["start_large_over_small"] = round(medians[1] / medians[0], 3)
        return figures

    async def start(self, template: str | None) -> dict[str, float]:
        times = []
        for _ in range(self.rounds):
            boxes: list[Sandbox] = []

            async def create_and_run(boxes: list[Sandbox] = boxes) -> None:
                boxes.append(await self.create(template))
                await self.client.run(boxes[0], TRUE)

            times.append(await timed(create_and_run))
            await self.client.delete(boxes[0].id)
        return summary(times)

    async def creates_per_s(self, workers: int) -> float:
        seconds = 3.0 if self.quick else 10.0
        made: list[str] = []
        begun = time.perf_counter()

        async def work() -> None:
            while time.perf_counter() - begun < seconds:
                made.append((await self.create()).id)

        await asyncio.gather(*(work() for _ in range(workers)))
        took = time.perf_counter() - begun
        await self.delete_all(made)
        return round(len(made) / took, 1)

    async def throughput(self) -> dict[str, Any]:
        assert self.client.files is not None
        files, box, size = self.client.files, await self.create(), 100 * MIB

        async def source() -> AsyncIterator[bytes]:
            block = b"x" * (256 * 1024)
            for _ in range(size // len(block)):
                yield block

        async def down() -> None:
            async with files.read(box, "/home/user/large") as stream:
                async for _ in stream:
                    pass

        up_ms = await timed(lambda: files.write(box, "/home/user/large", source()))
        down_ms = await timed(down)
        await self.client.delete(box.id)
        return {
            "upload_mib_per_s": round(size / MIB / up_ms * 1000, 1),
            "download_mib_per_s": round(size / MIB / down_ms * 1000, 1),
        }

    async def idle_memory(self, daemon: daemons.Daemon) -> dict[str, Any]:
        """Proportional memory of all that runs for an idle sandbox, and what the daemons grew by."""
        count = 10 if self.quick else 40
        before = daemon_pss(daemon)
        boxes = [await self.create() for _ in range(count)]
        inside, charged = group_pss(daemon), group_charge(daemon)
        grown = daemon_pss(daemon) - before
        await self.delete_all([box.id for box in boxes])
        return {
            "idle_sandbox_mib": round((inside + grown) / count / MIB, 2),
            "idle_sandbox_inside_mib": round(inside / count / MIB, 2),
            "idle_sandbox_charged_mib": round(charged / count / MIB, 2),
        }

    async def delete_all(self, ids: list[str]) -> None:
        for start in range(0, len(ids), 8):
            await asyncio.gather(*(self.client.delete(i) for i in ids[start : start + 8]))


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    begun = time.perf_counter()
    await work()
    return (time.perf_counter() - begun) * 1000


def summary(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "median": round(statistics.median(ordered), 1),
        "p95": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))], 1),
        "min": round(ordered[0], 1),
    }


def pss(pid: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def group_pss(daemon: daemons.Daemon) -> int:
    return sum(pss(pid) for pid in processes() if f"skillyard-{daemon.key}" in cgroup(pid))


def group_charge(daemon: daemons.Daemon) -> int:
    """What the kernel charges to the sandboxes' control group: its own memory and file cache too."""
    for top, names, _ in os.walk("/sys/fs/cgroup"):
        if f"skillyard-{daemon.key}" in names:
            for name in ("memory.usage_in_bytes", "memory.current"):
                path = Path(top, f"skillyard-{daemon.key}", name)
                if path.exists():
                    return int(path.read_text())
    return 0


def daemon_pss(daemon: daemons.Daemon) -> int:
    family = {str(daemon.process.pid)}
    for pid in sorted(processes(), key=int):
        if parent(pid) in family:
            family.add(pid)
    return sum(pss(pid) for pid in family if f"skillyard-{daemon.key}" not in cgroup(pid))


def processes() -> list[str]:
    return [path.name for path in Path("/proc").iterdir() if path.name.isdigit()]


def cgroup(pid: str) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cgroup").read_text()
    return ""


def parent(pid: str) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    return ""


async def measure(socket: str, *, quick: bool, daemon: daemons.Daemon | None) -> dict[str, Any]:
    async with await registry.open_client("local", {"socket": socket}) as client:
        bench = Bench(client, daemons.base_template(), quick=quick)
        figures = await bench.run()
        if daemon is not None:
            figures |= await bench.idle_memory(daemon)
        return figures


def main() -> int:
    parser = argparse.ArgumentParser(description="Times the contract against the local backend.")
    parser.add_argument("--socket", help="of a sandboxd that runs; default: one of its own")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller files")
    args = parser.parse_args()
    if args.socket:
        figures = asyncio.run(measure(args.socket, quick=args.quick, daemon=None))
    elif reason := daemons.why_not():
        sys.stderr.write(f"This benchmark {reason}.\n")
        return 1
    else:
        with daemons.start() as daemon:
            figures = asyncio.run(measure(str(daemon.socket), quick=args.quick, daemon=daemon))
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
