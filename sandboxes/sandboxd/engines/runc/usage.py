"""What a sandbox uses, from the files of its cgroups (v1 where a controller is there, else v2)."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

from sandboxes.sandboxd.engines.base import Usage
from sandboxes.sandboxd.engines.runc.sandbox import RuncSandbox

__all__ = ["measure"]


def measure(sandbox: RuncSandbox) -> Usage:
    """CPU is the share of its limit, in percent, since the last call (the first: since creation).
    The disk is the host's file system, which all sandboxes share."""
    limits = sandbox.record.limits
    host_cpus = os.cpu_count() or 1
    cpus = limits.cpus or host_cpus
    now, used_s = time.time(), _cpu_seconds(sandbox)
    then, before_s = sandbox.cpu_sample or (sandbox.record.created_at, 0.0)
    sandbox.cpu_sample = (now, used_s)
    elapsed = max(now - then, 0.001)
    used, cache = _memory_bytes(sandbox)
    disk = os.statvfs(sandbox.upper)
    return Usage(
        cpu_count=math.ceil(cpus),
        cpu_used_pct=round(max(0.0, 100 * (used_s - before_s) / elapsed / cpus), 2),
        memory_used_bytes=used,
        memory_total_bytes=limits.memory_bytes or _host_memory_bytes(),
        memory_cache_bytes=cache,
        disk_used_bytes=(disk.f_blocks - disk.f_bfree) * disk.f_frsize,
        disk_total_bytes=disk.f_blocks * disk.f_frsize,
    )


def _cpu_seconds(sandbox: RuncSandbox) -> float:
    if folder := _v1(sandbox, "cpuacct"):
        return int((folder / "cpuacct.usage").read_text()) / 1e9
    return _fields(sandbox.cgroup.unified / "cpu.stat")["usage_usec"] / 1e6


def _memory_bytes(sandbox: RuncSandbox) -> tuple[int, int]:
    """(used without cache, cache)."""
    if folder := _v1(sandbox, "memory"):
        total = int((folder / "memory.usage_in_bytes").read_text())
        cache = _fields(folder / "memory.stat")["total_cache"]
    else:
        total = int((sandbox.cgroup.unified / "memory.current").read_text())
        cache = _fields(sandbox.cgroup.unified / "memory.stat")["file"]
    return max(0, total - cache), cache


def _v1(sandbox: RuncSandbox, controller: str) -> Path | None:
    root = sandbox.cgroup.cgroups.controller(controller)
    return None if root is None else root / sandbox.cgroup.path[1:]


def _fields(path: Path) -> dict[str, int]:
    return {k: int(v) for k, v in (line.split() for line in path.read_text().splitlines())}


def _host_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
