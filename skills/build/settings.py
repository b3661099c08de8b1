"""What a build may cost, and where it may download from."""

from __future__ import annotations

from dataclasses import dataclass, field

from django.conf import settings as django_settings

from sandboxes.capabilities import Capabilities
from sandboxes.network import OPEN, NetworkPolicy
from skills.models import BuildStep

__all__ = ["MAX_ATTEMPTS", "BuildSettings"]

MAX_ATTEMPTS = 3
"""How often a build is taken up again after its worker died."""

_STEP_LIMITS_S = {
    BuildStep.PREPARE: 300.0,
    BuildStep.UPLOAD: 600.0,
    BuildStep.INSTALL: 2400.0,
    BuildStep.VERIFY: 600.0,
    BuildStep.CLEAN: 300.0,
    BuildStep.RECORD: 300.0,
    BuildStep.SNAPSHOT: 1200.0,
    BuildStep.SWITCH: 120.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """Times in seconds. `max_bytes` limits the disk that the whole result uses, base included."""

    total_s: float = 3000.0
    step_s: dict[BuildStep, float] = field(default_factory=lambda: dict(_STEP_LIMITS_S))
    command_s: float = 1200.0
    max_bytes: int = 12 * 1024**3
    registries: tuple[str, ...] = ()
    """Domains that builds may reach; empty is anywhere outside the private ranges."""
    poll_s: float = 1.0
    """How often a running build looks whether it was cancelled."""
    heartbeat_s: float = 5.0
    stuck_after_s: float = 90.0
    """A worker that was silent for this long is dead."""
    lease_s: float = 60.0
    """How long a dead worker keeps its space's lock at most."""
    queued_after_s: float = 30.0
    """A build that nobody has taken up for this long is handed to a worker again."""

    @classmethod
    def current(cls) -> BuildSettings:
        """As settings.SKILLYARD_BUILD_* say."""
        read = {
            name: getattr(django_settings, f"SKILLYARD_BUILD_{name.upper()}", None)
            for name in ("total_s", "command_s", "max_bytes", "registries")
        }
        given = {name: value for name, value in read.items() if value}
        if "registries" in given:
            given["registries"] = tuple(given["registries"])
        return cls(**given)

    def policy(self, capabilities: Capabilities) -> NetworkPolicy:
        """A build's own network: outbound to the registries, inbound closed."""
        if self.registries and capabilities.outbound_domain_lists:
            return NetworkPolicy.parse(outbound=False, inbound=False, allow=self.registries)
        return OPEN

    @property
    def sandbox_s(self) -> float:
        """The life of a build's sandbox: the provider itself reclaims one that we lost. An hour by default,
        the most that some providers give."""
        return self.total_s + 600.0
