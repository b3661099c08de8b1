"""Which release a session gets: the space's current one, or the candidate for a share of them. Pure."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skills.models import Release
    from skills.ports import SpacePort

__all__ = ["bucket", "release_for_session"]


def release_for_session(space: SpacePort, session_id: str) -> Release | None:
    """The release that a new sandbox of this session starts from; None is the base template.

    Deterministic: a session stays on its side of the line while the percentage only grows. A
    candidate that can no longer start on the space's backend is passed over.
    """
    candidate: Release | None = space.candidate_release
    chosen: Release | None = space.current_release
    if candidate is None or not candidate.usable_on(space.backend):
        return chosen
    if session_id in space.rollout_sessions:
        return candidate
    if bucket(candidate.pk, session_id) < space.rollout_percent:
        return candidate
    return chosen


def bucket(release_id: str, session_id: str) -> int:
    """0 to 99, evenly spread, different for each release so that no session is always first."""
    digest = hashlib.sha256(f"{release_id}\n{session_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % 100
