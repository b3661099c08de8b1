"""What the engine knows, on disk: one JSON file a sandbox and a snapshot, replaced atomically.

A record is written before the thing it describes exists and removed after it is gone, so whatever a
crash leaves behind, the next start finds it. Nothing of a sandbox outlives a reboot of the host, so
its record is safe against a crash of sandboxd; a snapshot's is flushed to the disk as well.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandboxes.network import NetworkPolicy
from sandboxes.sandboxd.engines.base import Limits

__all__ = ["Phase", "SandboxRecord", "SnapshotFile", "boot_id", "process_start", "write_json"]


class Phase(enum.StrEnum):
    CREATING = "creating"
    RUNNING = "running"
    DESTROYING = "destroying"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRecord:
    """`layers` from the top down: snapshot ids, then the template's id unless the lowest snapshot
    stands alone. `paused` is what was asked for last, whatever a crash left frozen."""

    id: str
    image: str
    template: str
    layers: tuple[str, ...]
    env: dict[str, str]
    network: NetworkPolicy
    limits: Limits
    created_at: float
    boot_id: str
    phase: Phase
    paused: bool = False
    init_pid: int = 0
    init_start: int = 0

    def save(self, path: Path) -> None:
        write_json(path, dataclasses.asdict(self))

    @classmethod
    def load(cls, path: Path) -> SandboxRecord:
        """ValueError, KeyError or TypeError for a file that is none of ours."""
        data: dict[str, Any] = json.loads(path.read_text())
        policy = data.pop("network")
        network = NetworkPolicy(
            outbound=policy["outbound"],
            inbound=policy["inbound"],
            allow=tuple(policy["allow"]),
            deny=tuple(policy["deny"]),
        )
        return cls(
            **data
            | {
                "network": network,
                "limits": Limits(**data["limits"]),
                "layers": tuple(data["layers"]),
                "phase": Phase(data["phase"]),
            }
        )

    def init_alive(self) -> bool:
        """Whether the very process that was started as this sandbox's init still runs."""
        return (
            self.init_pid > 0
            and self.boot_id == boot_id()
            and process_start(self.init_pid) == self.init_start
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFile:
    """`layers` begins with the snapshot itself. `synced`: its files have reached the disk.
    `deleted`: nobody may ask for it any more, but something stands on it."""

    id: str
    source_sandbox_id: str
    base_template_id: str
    layers: tuple[str, ...]
    env: dict[str, str]
    created_at: float
    size_bytes: int
    boot_id: str
    synced: bool = False
    deleted: bool = False

    def save(self, path: Path) -> None:
        write_json(path, dataclasses.asdict(self), durable=True)

    @classmethod
    def load(cls, path: Path) -> SnapshotFile:
        data: dict[str, Any] = json.loads(path.read_text())
        return cls(**data | {"layers": tuple(data["layers"])})

    def broken(self) -> bool:
        """The host went down before its files were on the disk."""
        return not self.synced and self.boot_id != boot_id()


def write_json(path: Path, data: dict[str, Any], *, durable: bool = False) -> None:
    """Readers see the old file or the new one, never a part. `durable` survives a power cut."""
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("w") as file:
        json.dump(data, file, indent=1)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    temporary.rename(path)
    if durable:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def process_start(pid: int) -> int:
    """Start time in clock ticks since boot, 0 if there is no such process or only its corpse.
    With the pid it names a process for good."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    fields = stat[stat.rindex(")") + 2 :].split()
    return 0 if fields[0] in "ZX" else int(fields[19])
