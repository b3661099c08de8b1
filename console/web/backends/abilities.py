"""What a backend can do, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.policies.enforcement import PROMISES, Promised

__all__ = ["abilities"]

_WORDS: dict[str, Promise | str] = {
    "files": gettext_lazy("reads and writes a sandbox's files"),
    "snapshots": gettext_lazy("freezes a sandbox as a snapshot, and starts others from it"),
    "snapshot_keeps_processes": gettext_lazy("keeps running processes in a snapshot"),
    "templates": gettext_lazy("lists base templates"),
    "template_builds": gettext_lazy("builds base templates from here"),
    "pause": gettext_lazy("pauses a sandbox with its memory"),
    "idle_timeout": gettext_lazy("ends or pauses a sandbox that nobody uses"),
    "terminal": gettext_lazy("opens terminals"),
    "resource_limits": gettext_lazy("limits memory, processes and CPU of each sandbox"),
    **PROMISES,
}


def abilities(capabilities: Mapping[str, Any]) -> list[Promised]:
    """In the order of the contract. Empty if the backend was never checked."""
    notes = capabilities.get("notes") or {}
    return [
        Promised(str(_WORDS[name]), value, _(notes[name]) if notes.get(name) else "")
        for name, value in capabilities.items()
        if name in _WORDS
    ]
