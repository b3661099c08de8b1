"""What a saved policy does that its author may not expect: entries without effect, limits of a backend.

Advice, never an error: the policy is valid.
"""

from __future__ import annotations

import bisect
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from sandboxes.capabilities import Capabilities
from sandboxes.network import ALWAYS_DENIED, LINK_LOCAL, NetworkPolicy
from sandboxes.words import Sentence
from sandboxes.words import gettext_noop as _

__all__ = ["Advice", "advice", "limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """`code` is stable; `other` is the entry that makes this one pointless, where there is one."""

    code: str
    list: str
    entry: str
    other: str = ""

    @property
    def words(self) -> Sentence:
        return Sentence(_SENTENCES[self.code], {"entry": self.entry, "other": self.other})

    @property
    def sentence(self) -> str:
        return str(self.words)


_SENTENCES = {
    "covered": _("{entry} has no effect: {other} covers it."),
    "needless_allow": _("{entry} has no effect: outbound is open and nothing denies it."),
    "needless_deny": _("{entry} has no effect: outbound is closed and nothing allows it."),
    "built_in_deny": _("{entry} has no effect: that range is always denied."),
    "deny_beaten": _("{entry} never applies: {other} allows all of it, and allow beats deny."),
    "link_local": _(
        "{entry} has no effect: link-local addresses, where cloud metadata lives, stay closed."
    ),
    "opens_private": _("{entry} opens private addresses, such as this host's neighbours. Be sure."),
}


def advice(policy: NetworkPolicy) -> list[Advice]:
    """In the order of the lists. Quick for whole lists: editors ask at every key."""
    allowed, denied = _Blocks(policy.allowed_networks), _Blocks(policy.deny)
    domains = set(policy.allowed_domains)
    found = [
        _about_block(policy, entry, allowed, denied)
        if "/" in entry
        else _about_domain(entry, domains)
        for entry in policy.allow
    ]
    found += [_about_deny(policy, entry, allowed, denied) for entry in policy.deny]
    return [item for item in found if item is not None]


def limits(policy: NetworkPolicy, capabilities: Capabilities) -> list[str]:
    """What of this policy the backend can't enforce, as sentences; such a policy must be refused."""
    problems = []
    if not policy.outbound and not capabilities.outbound_switch:
        problems.append(_("This backend can't close outbound traffic."))
    if (policy.deny or policy.allowed_networks) and not capabilities.outbound_cidr_lists:
        problems.append(_("This backend can't enforce lists of addresses; remove them."))
    if policy.allowed_domains and not capabilities.outbound_domain_lists:
        problems.append(_("This backend can't enforce lists of domains; remove them."))
    if policy.inbound and not capabilities.inbound_switch:
        problems.append(_("This backend can't open inbound traffic."))
    return problems


class _Blocks:
    """CIDR blocks of one list, to be asked often."""

    def __init__(self, entries: Iterable[str]) -> None:
        blocks = [(ipaddress.IPv4Network(entry), entry) for entry in entries]
        self._entries = {
            (int(block.network_address), block.prefixlen): entry for block, entry in blocks
        }
        self._starts = sorted(start for start, _prefix in self._entries)

    def covering(self, block: ipaddress.IPv4Network, *, but: str = "") -> str | None:
        """The smallest that holds all of it."""
        start = int(block.network_address)
        for prefix in range(block.prefixlen, -1, -1):
            wider = self._entries.get((start >> (32 - prefix) << (32 - prefix), prefix))
            if wider is not None and wider != but:
                return wider
        return None

    def meeting(self, block: ipaddress.IPv4Network) -> bool:
        """Does any of them have an address of it?"""
        at = bisect.bisect_left(self._starts, int(block.network_address))
        inside = at < len(self._starts) and self._starts[at] <= int(block.broadcast_address)
        return inside or self.covering(block) is not None


def _about_domain(entry: str, domains: set[str]) -> Advice | None:
    labels = entry.removeprefix("*.").split(".")
    for at in range(1, len(labels)):
        if (wider := "*." + ".".join(labels[at:])) in domains:
            return Advice(code="covered", list="allow", entry=entry, other=wider)
    return None


def _about_block(
    policy: NetworkPolicy, entry: str, allowed: _Blocks, denied: _Blocks
) -> Advice | None:
    block = ipaddress.IPv4Network(entry)
    if cover := allowed.covering(block, but=entry):
        return Advice(code="covered", list="allow", entry=entry, other=cover)
    if block.subnet_of(LINK_LOCAL):
        return Advice(code="link_local", list="allow", entry=entry)
    if any(block.overlaps(closed) for closed in ALWAYS_DENIED) and block.prefixlen > 0:
        return Advice(code="opens_private", list="allow", entry=entry)
    if policy.outbound and not denied.meeting(block):
        return Advice(code="needless_allow", list="allow", entry=entry)
    return None


def _about_deny(
    policy: NetworkPolicy, entry: str, allowed: _Blocks, denied: _Blocks
) -> Advice | None:
    block = ipaddress.IPv4Network(entry)
    if beaten := allowed.covering(block):
        return Advice(code="deny_beaten", list="deny", entry=entry, other=beaten)
    if cover := denied.covering(block, but=entry):
        return Advice(code="covered", list="deny", entry=entry, other=cover)
    if allowed.meeting(block):
        return None
    if not policy.outbound:
        return Advice(code="needless_deny", list="deny", entry=entry)
    if any(block.subnet_of(closed) for closed in ALWAYS_DENIED):
        return Advice(code="built_in_deny", list="deny", entry=entry)
    return None
