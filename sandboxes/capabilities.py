"""What a backend can do, as data. Pages, callers and the contract suite read this; nobody asks
which provider it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

__all__ = ["Capabilities"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """One boolean a promise. `notes` says, by capability, why one is missing or reduced here."""

    files: bool
    snapshots: bool
    snapshot_keeps_processes: bool
    templates: bool
    template_builds: bool = False
    """Base templates can be made from here; else they are made at the provider."""
    pause: bool
    """Pause and resume keep the memory of running processes."""
    idle_timeout: bool
    outbound_switch: bool
    outbound_cidr_lists: bool
    outbound_domain_lists: bool
    private_ranges_closed: bool = False
    """Whatever a policy says, a sandbox reaches no private, link-local or metadata address of its host."""
    inbound_switch: bool
    inbound_token: bool
    network_update: bool
    """A policy change reaches a running sandbox, lists included."""
    terminal: bool
    resource_limits: bool
    """Memory, process and CPU limits are enforced per sandbox."""
    notes: Mapping[str, str] = field(default_factory=dict)

    def names(self) -> tuple[str, ...]:
        """The names of the capabilities that this backend has."""
        return tuple(f.name for f in fields(self) if getattr(self, f.name) is True)
