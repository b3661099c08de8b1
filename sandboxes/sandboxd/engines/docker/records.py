"""What the engine knows, on disk: one JSON file a sandbox and a snapshot, replaced atomically.

A record is written before the container or image that it describes is made and removed after it is
gone; the labels on those say the same, so that either finds the other after a crash.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandboxes.network import NetworkPolicy
from sandboxes.sandboxd.engines.base import Limits
from sandboxes.sandboxd.engines.runc.records import Phase, write_json

__all__ = ["ContainerRecord", "ImageRecord", "Paths"]


@dataclass(frozen=True, slots=True)
class Paths:
    """The folders of one data directory."""

    data: Path

    @property
    def sandboxes(self) -> Path:
        return self.data / "sandboxes"

    @property
    def snapshots(self) -> Path:
        return self.data / "snapshots"

    @property
    def archive(self) -> Path:
        return self.data / "archive"

    @property
    def templates(self) -> Path:
        return self.data / "templates"

    @property
    def lock(self) -> Path:
        return self.data / "engine.lock"

    @property
    def spawner(self) -> Path:
        return self.data / "spawner.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRecord:
    """`image` is a template's or snapshot's id, `image_id` Docker's digest of it. `started_at` is
    Docker's own word: a container that somebody started anew is not the one we know."""

    id: str
    image: str
    image_id: str
    template: str
    env: dict[str, str]
    network: NetworkPolicy
    limits: Limits
    created_at: float
    phase: Phase
    container_id: str = ""
    started_at: str = ""

    def save(self, path: Path) -> None:
        write_json(path, dataclasses.asdict(self))

    @classmethod
    def load(cls, path: Path) -> ContainerRecord:
        """ValueError, KeyError or TypeError for a file that is none of ours."""
        data: dict[str, Any] = json.loads(path.read_text())
        policy = data["network"]
        network = NetworkPolicy(
            outbound=policy["outbound"],
            inbound=policy["inbound"],
            allow=tuple(policy["allow"]),
            deny=tuple(policy["deny"]),
        )
        limits = Limits(**data["limits"])
        return cls(**data | {"network": network, "limits": limits, "phase": Phase(data["phase"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRecord:
    """A snapshot. `archived`: we hold a copy of our own. `deleted`: nobody may ask for it any more,
    but something stands on it."""

    id: str
    image_id: str
    source_sandbox_id: str
    base_template_id: str
    env: dict[str, str]
    created_at: float
    size_bytes: int
    archived: bool = False
    deleted: bool = False

    def save(self, path: Path) -> None:
        write_json(path, dataclasses.asdict(self), durable=True)

    @classmethod
    def load(cls, path: Path) -> ImageRecord:
        return cls(**json.loads(path.read_text()))
