"""The OCI bundle of a sandbox: what runc is told. https://github.com/opencontainers/runtime-spec

Root inside is an unprivileged id outside, the init has no capability at all, and commands (which
the spawner starts) get no more than `CAPABILITIES`. Nothing of the host is mounted but device nodes,
the init's binary and the description of the CPUs.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

from sandboxes.sandboxd.engines.base import Limits
from sandboxes.sandboxd.engines.runc import seccomp

__all__ = ["CAPABILITIES", "ID_COUNT", "ID_OFFSET", "config"]

ID_OFFSET = 100_000
ID_COUNT = 65_536

CAPABILITIES = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_FOWNER": 3,
    "CAP_FSETID": 4,
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
    "CAP_SYS_CHROOT": 18,
}
"""What apt, dpkg, pip, npm, tar, chown and su need of root, by kernel number (capability.h)."""

_CPU_PERIOD_US = 100_000
_BIND = ["bind", "ro", "nosuid", "nodev"]
_MASKED = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/bus",
    "/proc/config.gz",
    "/proc/interrupts",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/keys",
    "/proc/key-users",
    "/proc/kmsg",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/vmallocinfo",
]
_READ_ONLY = ["/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", "/sys"]


def config(
    *,
    hostname: str,
    rootfs: Path,
    netns: Path,
    cgroup: str | None,
    limits: Limits,
    init: Path,
) -> dict[str, Any]:
    """`init` is a static binary on the host that reaps and else does nothing (catatonit). Without a
    cgroup there are no limits."""
    return {
        "ociVersion": "1.0.2",
        "hostname": hostname,
        "root": {"path": str(rootfs), "readonly": False},
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": ["/dev/init", "-P"],
            "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
            "cwd": "/",
            "noNewPrivileges": True,
            "capabilities": {
                kind: []
                for kind in ("bounding", "effective", "inheritable", "permitted", "ambient")
            },
            "oomScoreAdj": 500,
        },
        "mounts": _mounts(init),
        "linux": {
            **({"cgroupsPath": cgroup} if cgroup is not None else {}),
            "uidMappings": [_ID_MAPPING],
            "gidMappings": [_ID_MAPPING],
            "namespaces": [
                *({"type": kind} for kind in ("user", "pid", "mount", "ipc", "uts", "cgroup")),
                {"type": "network", "path": str(netns)},
            ],
            "resources": _resources(limits) if cgroup is not None else {},
            "seccomp": seccomp.oci(platform.machine()),
            "maskedPaths": _MASKED,
            "readonlyPaths": _READ_ONLY,
        },
    }


_ID_MAPPING = {"containerID": 0, "hostID": ID_OFFSET, "size": ID_COUNT}


def _mounts(init: Path) -> list[dict[str, Any]]:
    cpus = "/sys/devices/system/cpu"
    return [
        _mount("/proc", "proc", "nosuid", "noexec", "nodev"),
        _mount("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=1m"),
        _mount(
            "/dev/pts",
            "devpts",
            "nosuid",
            "noexec",
            "newinstance",
            "ptmxmode=0666",
            "mode=0620",
            "gid=5",
        ),
        _mount("/dev/shm", "tmpfs", "nosuid", "noexec", "nodev", "mode=1777"),  # noqa: S108
        _mount("/sys", "tmpfs", "nosuid", "noexec", "nodev", "mode=755", "size=64k"),
        {"destination": cpus, "type": "bind", "source": cpus, "options": [*_BIND, "noexec"]},
        # Below /dev, a tmpfs: a mount point in the root would stay behind in snapshots.
        {"destination": "/dev/init", "type": "bind", "source": str(init), "options": _BIND},
    ]


def _mount(target: str, kind: str, *options: str) -> dict[str, Any]:
    return {"destination": target, "type": kind, "source": kind, "options": list(options)}


def _resources(limits: Limits) -> dict[str, Any]:
    resources: dict[str, Any] = {}
    if limits.memory_bytes is not None:
        # Equal to the memory limit: no swap.
        resources["memory"] = {"limit": limits.memory_bytes, "swap": limits.memory_bytes}
    if limits.pids is not None:
        resources["pids"] = {"limit": limits.pids}
    if limits.cpus is not None:
        quota = int(limits.cpus * _CPU_PERIOD_US)
        resources["cpu"] = {"period": _CPU_PERIOD_US, "quota": quota}
    return resources
