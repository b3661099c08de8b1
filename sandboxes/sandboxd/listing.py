"""Which sandboxes a list is asked for. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sandboxes.sandboxd.records import SandboxRecord

__all__ = ["SandboxFilter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxFilter:
    """Empty `states` means any; `images` None means any, empty means none."""

    metadata: Mapping[str, str] = field(default_factory=dict)
    states: Collection[str] = ()
    started_after: float | None = None
    images: Collection[str] | None = None

    def matches(self, record: SandboxRecord) -> bool:
        return (
            (not self.states or record.state in self.states)
            and (self.images is None or record.image in self.images)
            and (self.started_after is None or record.started_at >= self.started_after)
            and all(record.metadata.get(key) == value for key, value in self.metadata.items())
        )
