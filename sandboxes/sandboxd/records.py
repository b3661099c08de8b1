"""What sandboxd remembers of a sandbox and of a snapshot, across its own restarts."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

from sandboxes.network import NetworkPolicy

__all__ = ["CreateReceipt", "SandboxRecord", "SnapshotNames"]


@dataclass(slots=True, kw_only=True)
class SandboxRecord:
    """One sandbox as the protocol promised it. Times are unix seconds; tokens are secrets.

    `template` is what the creator asked for, `image` the template's or snapshot's id behind it.
    """

    id: str
    template: str
    image: str
    started_at: float
    end_at: float
    timeout_s: float
    paused: bool = False
    auto_pause: bool = False
    auto_resume: bool = False
    outbound: bool = True
    inbound: bool = True
    allow: list[str] = field(default_factory=list)
    deny: list[str] = field(default_factory=list)
    mask_request_host: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    access_token: str | None = field(default=None, repr=False)
    traffic_token: str | None = field(default=None, repr=False)

    @property
    def state(self) -> str:
        return "paused" if self.paused else "running"

    @property
    def policy(self) -> NetworkPolicy:
        return NetworkPolicy.parse(
            outbound=self.outbound, inbound=self.inbound, allow=self.allow, deny=self.deny
        )

    def set_policy(self, policy: NetworkPolicy) -> None:
        self.outbound = policy.outbound
        self.inbound = policy.inbound
        self.allow = list(policy.allow)
        self.deny = list(policy.deny)

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Fields of a newer version are dropped, so that a downgrade still starts."""
        known = cls.__dataclass_fields__
        return cls(**{key: value for key, value in json.loads(text).items() if key in known})


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotNames:
    """The label a snapshot was given: the engine owns the rest of it."""

    id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateReceipt:
    """What an Idempotency-Key stood for: the request's digest and the sandbox that came of it."""

    key: str
    digest: str
    sandbox_id: str
    created_at: float


def rfc3339(timestamp: float) -> str:
    """Microseconds and a Z, as Go and both SDKs parse it."""
    text: Any = datetime.fromtimestamp(timestamp, UTC).isoformat(timespec="microseconds")
    return str(text).replace("+00:00", "Z")
