"""The container of a sandbox: what Docker is told, field by field. Nothing is passed through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandboxes.sandboxd.engines.docker.records import ContainerRecord
from sandboxes.sandboxd.engines.runc.bundle import CAPABILITIES

__all__ = ["HOST_LABEL", "SANDBOX_LABEL", "config", "keeper_config"]

HOST_LABEL = "skillyard.host"
"""Whose it is: the key of the sandboxd's data directory."""
SANDBOX_LABEL = "skillyard.sandbox"

_OOM_SCORE_ADJ = 500
# Not `sleep`, which commands in a sandbox count and kill.
_IDLE = ["tail", "-f", "/dev/null"]


def config(
    record: ContainerRecord, *, key: str, network: Mapping[str, Any], cgroup_parent: str
) -> dict[str, Any]:
    """`network` is what the reach adds to HostConfig: mode, DNS and sysctls."""
    limits = record.limits
    host: dict[str, Any] = {
        "Init": True,
        "Privileged": False,
        "CapDrop": ["ALL"],
        "CapAdd": sorted(name.removeprefix("CAP_") for name in CAPABILITIES),
        # Docker's default seccomp and AppArmor or SELinux profiles hold, since we name no other.
        "SecurityOpt": ["no-new-privileges"],
        "IpcMode": "private",
        "Binds": [],
        "PublishAllPorts": False,
        "RestartPolicy": {"Name": "no"},
        "LogConfig": {"Type": "none"},
        "OomScoreAdj": _OOM_SCORE_ADJ,
        "ExtraHosts": [f"{record.id}:127.0.0.1"],
        **network,
    }
    if cgroup_parent:
        host["CgroupParent"] = cgroup_parent
    if limits.memory_bytes is not None:
        # Equal: no swap.
        host |= {"Memory": limits.memory_bytes, "MemorySwap": limits.memory_bytes}
    if limits.pids is not None:
        host["PidsLimit"] = limits.pids
    if limits.cpus is not None:
        host["NanoCpus"] = int(limits.cpus * 1e9)
    return {
        "Image": record.image_id,
        "Hostname": record.id,
        "User": "0:0",
        "WorkingDir": "/",
        "Entrypoint": [],
        "Cmd": _IDLE,
        "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        "Healthcheck": {"Test": ["NONE"]},
        "Labels": {HOST_LABEL: key, SANDBOX_LABEL: record.id},
        "HostConfig": host,
    }


def keeper_config(image_id: str, *, key: str, label: str, value: str) -> dict[str, Any]:
    """A container that is never started: its image is in use, so that `docker image prune` leaves
    it alone."""
    return {
        "Image": image_id,
        "Entrypoint": [],
        "Cmd": ["true"],
        "Labels": {HOST_LABEL: key, label: value},
        "HostConfig": {"NetworkMode": "none", "LogConfig": {"Type": "none"}},
    }
