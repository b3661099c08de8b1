"""What a saved policy does that its author may not expect: entries without effect, limits of a backend.

Advice, never an error: the policy is valid.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from sandboxes.capabilities import Capabilities
from sandboxes.network import ALWAYS_DENIED, LINK_LOCAL, NetworkPolicy

__all__ = ["Advice", "advice", "limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """`code` is stable; `other` is the entry that makes this one pointless, where there is one."""

    code: str
    list: str
    entry: str
    other: str = ""

    @property
    def sentence(self) -> str:
        return _SENTENCES[self.code].format(entry=self.entry, other=self.other)


_SENTENCES = {
    "covered": "{entry} has no effect: {other} covers it.",
    "needless_allow": "{entry} has no effect: outbound is open and nothing denies it.",
    "needless_deny": "{entry} has no effect: outbound is closed and nothing allows it.",
    "built_in_deny": "{entry} has no effect: that range is always denied.",
    "deny_beaten": "{entry} never applies: {other} allows all of it, and allow beats deny.",
    "link_local": "{entry} has no effect: link-local addresses, where cloud metadata lives, stay closed.",
    "opens_private": "{entry} opens private addresses, such as this host's neighbours. Be sure.",
}


def advice(policy: NetworkPolicy) -> list[Advice]:
    """In the order of the lists."""
    found = [_about_allow(policy, entry) for entry in policy.allow]
    found += [_about_deny(policy, entry) for entry in policy.deny]
    return [item for item in found if item is not None]


def limits(policy: NetworkPolicy, capabilities: Capabilities) -> list[str]:
    """What of this policy the backend can't enforce, as sentences; such a policy must be refused."""
    problems = []
    if not policy.outbound and not capabilities.outbound_switch:
        problems.append("This backend can't close outbound traffic.")
    if (policy.deny or policy.allowed_networks) and not capabilities.outbound_cidr_lists:
        problems.append("This backend can't enforce lists of addresses; remove them.")
    if policy.allowed_domains and not capabilities.outbound_domain_lists:
        problems.append("This backend can't enforce lists of domains; remove them.")
    if policy.inbound and not capabilities.inbound_switch:
        problems.append("This backend can't open inbound traffic.")
    return problems


def _about_allow(policy: NetworkPolicy, entry: str) -> Advice | None:
    if cover := _cover(entry, [other for other in policy.allow if other != entry]):
        return Advice(code="covered", list="allow", entry=entry, other=cover)
    if "/" not in entry:
        return None
    network = ipaddress.ip_network(entry)
    if network.subnet_of(LINK_LOCAL):  # type: ignore[arg-type]
        return Advice(code="link_local", list="allow", entry=entry)
    if any(network.overlaps(block) for block in ALWAYS_DENIED) and network.prefixlen > 0:
        return Advice(code="opens_private", list="allow", entry=entry)
    denied = any(network.overlaps(ipaddress.ip_network(other)) for other in policy.deny)
    if policy.outbound and not denied:
        return Advice(code="needless_allow", list="allow", entry=entry)
    return None


def _about_deny(policy: NetworkPolicy, entry: str) -> Advice | None:
    if beaten := _cover(entry, policy.allowed_networks):
        return Advice(code="deny_beaten", list="deny", entry=entry, other=beaten)
    if cover := _cover(entry, [other for other in policy.deny if other != entry]):
        return Advice(code="covered", list="deny", entry=entry, other=cover)
    network = ipaddress.ip_network(entry)
    if not policy.outbound and not any(
        network.overlaps(ipaddress.ip_network(other)) for other in policy.allowed_networks
    ):
        return Advice(code="needless_deny", list="deny", entry=entry)
    if any(network.subnet_of(block) for block in ALWAYS_DENIED) and not any(  # type: ignore[arg-type]
        network.overlaps(ipaddress.ip_network(other)) for other in policy.allowed_networks
    ):
        return Advice(code="built_in_deny", list="deny", entry=entry)
    return None


def _cover(entry: str, others: list[str] | tuple[str, ...]) -> str | None:
    """The entry among `others` that says all that `entry` says. Equal entries can't occur."""
    for other in others:
        if "/" in entry and "/" in other:
            if ipaddress.ip_network(entry).subnet_of(ipaddress.ip_network(other)):  # type: ignore[arg-type]
                return other
        elif other.startswith("*.") and "/" not in entry and entry.endswith(other[1:]):
            return other
    return None
