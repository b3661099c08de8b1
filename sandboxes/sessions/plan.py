"""What a new sandbox of a session would be, as the space says it now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sandboxes.network import NetworkPolicy
from sandboxes.sessions.keys import (
    SCHEMA_VERSION,
    TAG_POLICY,
    TAG_RELEASE,
    TAG_SCHEMA,
    SessionKey,
    ownership_tags,
)
from sandboxes.types import CreateRequest, TimeoutPolicy

__all__ = ["ReleaseImage", "SandboxPlan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseImage:
    """A space's current release. `fingerprint` is of the provider account that holds `snapshot`."""

    id: str
    snapshot: str
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPlan:
    """`fingerprint` is the backend's now. A release in another account can't start there, so the
    sandbox falls back to the base template, and `fell_back` says so."""

    base_template: str
    policy: NetworkPolicy
    policy_revision: int
    timeout: TimeoutPolicy
    fingerprint: str
    release: ReleaseImage | None = None
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def fell_back(self) -> bool:
        return self.release is not None and self.release.fingerprint != self.fingerprint

    @property
    def template(self) -> str:
        if self.release is None or self.fell_back:
            return self.base_template
        return self.release.snapshot

    @property
    def release_id(self) -> str:
        """Of the release that the sandbox really carries; empty on the base template."""
        return "" if self.release is None or self.fell_back else self.release.id

    def tags(self) -> dict[str, str]:
        """What the sandbox was made from; the reconciler finds drift by them."""
        return {
            TAG_POLICY: str(self.policy_revision),
            TAG_RELEASE: self.release_id,
            TAG_SCHEMA: SCHEMA_VERSION,
        }

    def drifted(self, metadata: Mapping[str, str]) -> bool:
        """Was a sandbox with these tags made from another policy, release or schema?"""
        return any(metadata.get(tag) != value for tag, value in self.tags().items())

    def request(self, key: SessionKey, backend: str) -> CreateRequest:
        return CreateRequest(
            template=self.template,
            network=self.policy,
            timeout=self.timeout,
            metadata={**ownership_tags(key, backend), **self.tags()},
            env=dict(self.env),
        )
