"""What a sandbox uses of the host."""

from __future__ import annotations

import math
import os
import time

from sandboxes.sandboxd.engines.base import Usage
from sandboxes.sandboxd.engines.runc.sandbox import RuncSandbox

__all__ = ["measure"]


def measure(sandbox: RuncSandbox) -> Usage:
    """CPU is the share of its limit, in percent, since the last call (the first: since creation).
    The disk is the host's file system, which all sandboxes share."""
    limits = sandbox.record.limits
    host_cpus = os.cpu_count() or 1
    cpus = limits.cpus or host_cpus
    now, used_s = time.time(), sandbox.cgroup.cpu_seconds()
    then, before_s = sandbox.cpu_sample or (sandbox.record.created_at, 0.0)
    sandbox.cpu_sample = (now, used_s)
    elapsed = max(now - then, 0.001)
    used, cache = sandbox.cgroup.memory_bytes()
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


def _host_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
