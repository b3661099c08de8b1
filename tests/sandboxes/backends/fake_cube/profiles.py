"""What the release lines differ in, as far as their clients can tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["PROFILES", "Profile"]


@dataclass(frozen=True, kw_only=True)
class Profile:
    version: str
    volumes: bool = True
    network_update: bool = True
    v2_create: bool = False
    compat: bool = True
    """GET /templates/compat, the matrix of nodes and templates."""
    delete_paused: Literal["refused", "wakes", "done"] = "done"
    """≤0.5: 500 “not in normal state”. 0.6: resumes first. 0.7: as it is."""
    paused_are_listed: bool = True
    snapshot_in_use_is_kept: bool = False
    """≤0.7.0: 409 while any sandbox was made from it."""
    repeated_snapshot_delete: int = 404
    refused_template: int = 404
    page_limit: int = 100


PROFILES = {
    profile.version: profile
    for profile in (
        Profile(
            version="0.5",
            volumes=False,
            compat=False,
            network_update=False,
            delete_paused="refused",
            paused_are_listed=False,
            snapshot_in_use_is_kept=True,
            refused_template=500,
            page_limit=20,
        ),
        Profile(
            version="0.6",
            network_update=False,
            delete_paused="wakes",
            snapshot_in_use_is_kept=True,
            refused_template=400,
        ),
        Profile(version="0.7", repeated_snapshot_delete=204),
        Profile(version="0.8", v2_create=True, repeated_snapshot_delete=204),
    )
}
