"""The neutral network policy: what a sandbox may reach, and whether it may be reached.

Two switches and two lists. The normal form is canonical, so equal policies compare equal. Allow
beats deny; deny beats the outbound switch; an empty list says nothing. The private and link-local
ranges of the host and its neighbours (`ALWAYS_DENIED`) are closed whatever the switch says, and
only an explicit allow entry for an address in them opens one, except for link-local, where cloud
metadata services live: nothing opens that.
"""

from __future__ import annotations

import enum
import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sandboxes.errors import InvalidRequest
from sandboxes.words import Sentence
from sandboxes.words import gettext_noop as _

__all__ = [
    "ALWAYS_DENIED",
    "CLOSED",
    "LINK_LOCAL",
    "OPEN",
    "Decision",
    "EntryError",
    "NetworkPolicy",
    "PolicyInvalid",
    "Verdict",
    "entry_problem",
    "normal_entry",
]

ANYWHERE = "0.0.0.0/0"
LINK_LOCAL = ipaddress.IPv4Network("169.254.0.0/16")
ALWAYS_DENIED = tuple(
    ipaddress.IPv4Network(block)
    for block in (
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.168.0.0/16",
    )
)

_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_MAX_DOMAIN = 253
_MAX_ENTRIES = 1024
_NEEDS_CLOSED = _(
    "a domain can only be allowed while outbound is off or 0.0.0.0/0 is denied; switch outbound off first"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryError:
    """One refused entry: which list, which line (from 0), the text as given, and the mend."""

    list: str
    index: int
    entry: str
    sentence: Sentence

    @property
    def message(self) -> str:
        return str(self.sentence)


class PolicyInvalid(InvalidRequest):
    """The policy cannot be saved. `errors` names every bad entry, not only the first."""

    def __init__(self, errors: Sequence[EntryError]) -> None:
        super().__init__(" ".join(f"{e.list} “{e.entry}”: {e.message}" for e in errors))
        self.errors = tuple(errors)


class Verdict(enum.StrEnum):
    ALLOWED = "allowed"
    DENIED = "denied"
    UNSURE = "unsure"
    """A name that only address rules could decide, and that no one resolved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """`rule` is the deciding entry, or "outbound" for the switch and "built-in" for fixed ranges."""

    verdict: Verdict
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPolicy:
    """In normal form: build it with `parse`, which validates and sorts.

    allow: IPv4 addresses as CIDR, domains, `*.domain` (subdomains only). deny: CIDR only.
    """

    outbound: bool
    inbound: bool
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    @classmethod
    def parse(
        cls,
        *,
        outbound: bool,
        inbound: bool,
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
    ) -> NetworkPolicy:
        """Validate and normalise. Raises PolicyInvalid with every error at once."""
        errors: list[EntryError] = []
        allowed = _normal_list("allow", allow, errors, domains=True)
        denied = _normal_list("deny", deny, errors, domains=False)
        if outbound and ANYWHERE not in denied:
            errors += [
                EntryError(list="allow", index=index, entry=entry, sentence=Sentence(_NEEDS_CLOSED))
                for entry, index in allowed.items()
                if not _is_network(entry)
            ]
        if errors:
            raise PolicyInvalid(errors)
        return cls(
            outbound=outbound,
            inbound=inbound,
            allow=tuple(sorted(allowed)),
            deny=tuple(sorted(denied)),
        )

    @property
    def closed_by_default(self) -> bool:
        """Only what the allow list names is reachable."""
        return not self.outbound or ANYWHERE in self.deny

    @property
    def allowed_networks(self) -> tuple[str, ...]:
        return tuple(entry for entry in self.allow if _is_network(entry))

    @property
    def allowed_domains(self) -> tuple[str, ...]:
        return tuple(entry for entry in self.allow if not _is_network(entry))

    def domain_allowed(self, name: str) -> str | None:
        """The allow entry that names this host, or None. Case and a trailing dot don't matter."""
        host = name.rstrip(".").lower()
        for entry in self.allowed_domains:
            if entry.startswith("*."):
                if host.endswith(entry[1:]):
                    return entry
            elif host == entry:
                return entry
        return None

    def decide_address(self, address: str) -> Decision:
        """May a sandbox reach this address? Policies speak of IPv4; sandboxes have no IPv6."""
        ip = ipaddress.ip_address(address)
        if ip.version == 6 or ip in LINK_LOCAL:
            return Decision(verdict=Verdict.DENIED, rule="built-in")
        if rule := _covering(ip, self.allowed_networks):
            return Decision(verdict=Verdict.ALLOWED, rule=rule)
        if rule := _covering(ip, self.deny):
            return Decision(verdict=Verdict.DENIED, rule=rule)
        if any(ip in block for block in ALWAYS_DENIED):
            return Decision(verdict=Verdict.DENIED, rule="built-in")
        verdict = Verdict.ALLOWED if self.outbound else Verdict.DENIED
        return Decision(verdict=verdict, rule="outbound")

    def decide(
        self, host: str, *, resolve: Callable[[str], Sequence[str]] | None = None
    ) -> Decision:
        """May a sandbox reach this host? A name is judged by the domain rules, then by the
        addresses that `resolve` finds; without `resolve`, address rules leave it unsure."""
        try:
            ipaddress.ip_address(host)
        except ValueError:
            pass
        else:
            return self.decide_address(host)
        if rule := self.domain_allowed(host):
            return Decision(verdict=Verdict.ALLOWED, rule=rule)
        if self.closed_by_default and not self.allowed_networks:
            return Decision(
                verdict=Verdict.DENIED, rule="outbound" if not self.outbound else ANYWHERE
            )
        if resolve is None:
            if not self.deny and not self.allowed_networks:
                return Decision(verdict=Verdict.ALLOWED, rule="outbound")
            return Decision(verdict=Verdict.UNSURE, rule="outbound")
        decisions = [self.decide_address(address) for address in resolve(host)]
        verdicts = {decision.verdict for decision in decisions}
        if len(verdicts) == 1:
            return decisions[0]
        return Decision(verdict=Verdict.UNSURE, rule="outbound")


OPEN = NetworkPolicy(outbound=True, inbound=False)
"""The default of a space: outbound open, inbound closed behind a token."""

CLOSED = NetworkPolicy(outbound=False, inbound=False)


def entry_problem(entry: str, *, domains: bool) -> str | None:
    """Why this list entry is refused, as a sentence with the mend, or None if it is fine."""
    try:
        _normal(entry, domains=domains)
    except _Refused as refused:
        return str(refused.sentence)
    return None


def normal_entry(entry: str, *, domains: bool) -> str | None:
    """How a policy writes this entry, or None if it is refused."""
    try:
        return _normal(entry, domains=domains)
    except _Refused:
        return None


class _Refused(Exception):
    def __init__(self, template: str, **values: object) -> None:
        self.sentence = Sentence(template, values)


def _normal_list(
    name: str, entries: Iterable[str], errors: list[EntryError], *, domains: bool
) -> dict[str, int]:
    """Each entry in normal form, with its place in `entries`."""
    normal: dict[str, int] = {}
    for index, entry in enumerate(entries):
        try:
            value = _normal(entry, domains=domains)
            if value in normal:
                raise _Refused(_("is already in the list as {entry}; remove one"), entry=value)
            if index >= _MAX_ENTRIES:
                raise _Refused(_("a list holds at most {most} entries"), most=_MAX_ENTRIES)
        except _Refused as refused:
            errors.append(
                EntryError(list=name, index=index, entry=entry, sentence=refused.sentence)
            )
        else:
            normal[value] = index
    return normal


def _normal(entry: str, *, domains: bool) -> str:
    text = entry.strip().lower().rstrip(".")
    if not text:
        raise _Refused(_("is empty; remove the line"))
    if ":" in text:
        raise _Refused(
            _("IPv6 and ports cannot be used here; give an IPv4 address, a CIDR or a name")
        )
    if re.fullmatch(r"[0-9./]+", text):
        return _normal_network(text)
    if not domains:
        raise _Refused(_("only IPv4 addresses and CIDR blocks can be denied; names can't"))
    return _normal_domain(text)


def _normal_network(text: str) -> str:
    try:
        return str(ipaddress.IPv4Network(text, strict=False))
    except ValueError:
        raise _Refused(_("is no IPv4 address or CIDR block, such as 203.0.113.0/24")) from None


def _normal_domain(text: str) -> str:
    host = text.removeprefix("*.")
    labels = host.split(".")
    if len(labels) < 2:
        raise _Refused(_("is no full domain name, such as example.com or *.example.com"))
    if len(host) > _MAX_DOMAIN or not all(_LABEL.fullmatch(label) for label in labels):
        raise _Refused(
            _("has a part that no domain name may have; use letters, digits and inner hyphens")
        )
    return text


def _is_network(entry: str) -> bool:
    return "/" in entry


def _covering(
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address, networks: Iterable[str]
) -> str | None:
    return next((block for block in networks if ip in ipaddress.ip_network(block)), None)
