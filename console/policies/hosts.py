"""Would a sandbox reach this host?"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.utils.translation import gettext as _

from sandboxes.errors import InvalidRequest
from sandboxes.network import Decision, NetworkPolicy

__all__ = ["HostTest", "host_of", "judge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTest:
    """`addresses` are what the console's own resolver found, each with what the rules of addresses say
    of it; empty if it found none. An allowed name opens its addresses whatever those say."""

    host: str
    addresses: dict[str, Decision]
    decision: Decision


def judge(policy: NetworkPolicy, text: str) -> HostTest:
    """By the policy alone; nothing is connected to. Blocks while it resolves. InvalidRequest for what is
    no host, address or URL."""
    host = host_of(text)
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        found = []
    names = sorted({str(address[4][0]) for address in found}, key=ipaddress.ip_address)
    decision = policy.decide(host, resolve=(lambda _name: names) if names else None)
    addresses = {name: policy.decide_address(name) for name in names}
    return HostTest(host=host, addresses=addresses, decision=decision)


def host_of(text: str) -> str:
    """The host that a name, an address or a URL names."""
    try:
        host = urlsplit(text if "://" in text else f"//{text}").hostname or ""
    except ValueError:
        host = ""
    if not host:
        raise InvalidRequest(_("Type a host name, an IPv4 address or a URL."))
    return host
