"""What the adapter writes into a sandbox's metadata for itself: under which operation it was made, what
happens to it when idle, and whether its ports are open. Cube can lose metadata on pause, so a mark only ever
helps; nothing is concluded from one that is missing."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from sandboxes.errors import InvalidRequest
from sandboxes.types import CreateRequest, OnTimeout

__all__ = ["MARK_KEY", "NEVER", "Mark", "refuse_mounts"]

MARK_KEY = "skillyard-made"
NEVER = -1
"""Cube's timeout that never comes."""
_MOUNT_KEYS = frozenset({"host-mount", "hostdir-mount"})


@dataclass(frozen=True, slots=True)
class Mark:
    operation: str
    on_timeout: OnTimeout
    timeout_s: int
    inbound: bool

    @classmethod
    def of(cls, request: CreateRequest, timeout_s: int) -> Mark:
        return cls(uuid.uuid4().hex, request.timeout.on_timeout, timeout_s, request.network.inbound)

    @classmethod
    def read(cls, metadata: Mapping[str, str]) -> Mark | None:
        """None if it is missing or not ours."""
        words = metadata.get(MARK_KEY, "").split()
        try:
            operation, on_timeout, timeout_s, inbound = words
            return cls(operation, OnTimeout(on_timeout), int(timeout_s), inbound == "open")
        except ValueError:
            return None

    def __str__(self) -> str:
        inbound = "open" if self.inbound else "closed"
        return f"{self.operation} {self.on_timeout.value} {self.timeout_s} {inbound}"


def refuse_mounts(metadata: Mapping[str, str], provider: str) -> None:
    """Cube takes these keys out of the metadata and mounts the host's directories by them."""
    names = sorted(name for name in metadata if name.strip().lower() in _MOUNT_KEYS)
    if names or MARK_KEY in metadata:
        raise InvalidRequest(
            f"Metadata may not hold “{(names or [MARK_KEY])[0]}”, which has a meaning of its own at "
            "Cube; use another key.",
            provider=provider,
            op="create",
        )
