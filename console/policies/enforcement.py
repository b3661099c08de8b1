"""What a backend really does with a policy, as its last check found it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from sandboxes.capabilities import Capabilities
from sandboxes.network import NetworkPolicy
from sandboxes.network_advice import limits

__all__ = ["PROMISES", "Promised", "enforcement", "unenforceable"]

PROMISES: dict[str, Promise | str] = {
    "outbound_switch": gettext_lazy("closes outbound traffic"),
    "outbound_cidr_lists": gettext_lazy("enforces lists of addresses"),
    "outbound_domain_lists": gettext_lazy("enforces lists of domains"),
    "private_ranges_closed": gettext_lazy("keeps sandboxes out of private networks"),
    "inbound_switch": gettext_lazy("opens and closes inbound traffic"),
    "inbound_token": gettext_lazy("asks for the session's token while inbound is closed"),
    "network_update": gettext_lazy("changes running sandboxes in place"),
}


@dataclass(frozen=True, slots=True)
class Promised:
    """`note` says why it is missing or reduced."""

    what: str
    kept: bool
    note: str


def enforcement(capabilities: Mapping[str, Any]) -> list[Promised]:
    """Empty if the backend was never checked."""
    if not capabilities:
        return []
    notes = capabilities.get("notes") or {}
    return [
        Promised(
            str(what),
            capabilities.get(name) is True,
            _(notes[name]) if notes.get(name) else "",
        )
        for name, what in PROMISES.items()
    ]


def unenforceable(policy: NetworkPolicy, capabilities: Mapping[str, Any]) -> list[str]:
    """What keeps this backend from having this policy, as sentences. An unknown one is not judged."""
    if not capabilities:
        return []
    return [_(sentence) for sentence in limits(policy, Capabilities(**capabilities))]
