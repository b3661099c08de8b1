"""A policy while it is edited: as typed, which may be wrong, with a remark on each entry."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from django.utils.translation import gettext as _

from sandboxes.network import NetworkPolicy, PolicyInvalid, normal_entry
from sandboxes.network_advice import advice
from sandboxes.words import Sentence

__all__ = ["Checked", "Draft", "Remark", "told"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The entries as somebody typed them, in their order."""

    outbound: bool
    inbound: bool
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    @classmethod
    def of(cls, policy: NetworkPolicy) -> Draft:
        return cls(
            outbound=policy.outbound,
            inbound=policy.inbound,
            allow=policy.allow,
            deny=policy.deny,
        )

    def policy(self) -> NetworkPolicy:
        """Raises PolicyInvalid."""
        return NetworkPolicy.parse(
            outbound=self.outbound, inbound=self.inbound, allow=self.allow, deny=self.deny
        )

    def normal(self) -> Draft:
        """As a policy would write it; an entry that is refused stays as it was typed."""
        return replace(
            self,
            allow=tuple(normal_entry(entry, domains=True) or entry for entry in self.allow),
            deny=tuple(normal_entry(entry, domains=False) or entry for entry in self.deny),
        )

    def check(self) -> Checked:
        try:
            policy = self.policy()
        except PolicyInvalid as invalid:
            return _refused(invalid)
        return _advised(self, policy)


@dataclass(frozen=True, slots=True)
class Remark:
    """On one entry. `bad` keeps the policy from being saved; others are advice."""

    bad: bool
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """`policy` is None if it can't be saved as it is; `remarks` by list and place in it."""

    policy: NetworkPolicy | None
    remarks: dict[tuple[str, int], list[Remark]]

    @property
    def bad(self) -> int:
        """How many entries keep it from being saved."""
        return sum(any(remark.bad for remark in found) for found in self.remarks.values())

    @property
    def advised(self) -> int:
        """How many entries don't do what their author may expect."""
        return len(self.remarks) - self.bad


def told(sentence: Sentence) -> str:
    """In the reader's language."""
    return _(sentence.template).format(**sentence.values)


def _refused(invalid: PolicyInvalid) -> Checked:
    remarks: dict[tuple[str, int], list[Remark]] = defaultdict(list)
    for error in invalid.errors:
        remarks[error.list, error.index].append(Remark(True, told(error.sentence)))
    return Checked(policy=None, remarks=dict(remarks))


def _advised(draft: Draft, policy: NetworkPolicy) -> Checked:
    places = {
        (name, normal_entry(entry, domains=name == "allow")): index
        for name in ("allow", "deny")
        for index, entry in enumerate(getattr(draft, name))
    }
    remarks: dict[tuple[str, int], list[Remark]] = defaultdict(list)
    for item in advice(policy):
        place = (item.list, places[item.list, item.entry])
        remarks[place].append(Remark(False, told(item.words)))
    return Checked(policy=policy, remarks=dict(remarks))
