"""Would a sandbox reach this host?"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from sandboxes.errors import InvalidRequest
from sandboxes.network import Decision, NetworkPolicy

__all__ = ["HostTest", "host_of", "judge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTest:
    """`addresses` are what the console's own resolver found; empty if it found none."""

    host: str
    addresses: list[str]
    decision: Decision


def judge(policy: NetworkPolicy, text: str) -> HostTest:
    """By the policy alone; nothing is connected to. Blocks while it resolves. InvalidRequest for what is
    no host, address or URL."""
    host = host_of(text)
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        found = []
    addresses = sorted({str(address[4][0]) for address in found})
    decision = policy.decide(host, resolve=(lambda _name: addresses) if addresses else None)
    return HostTest(host=host, addresses=addresses, decision=decision)


def host_of(text: str) -> str:
    """The host that a name, an address or a URL names."""
    try:
        host = urlsplit(text if "://" in text else f"//{text}").hostname or ""
    except ValueError:
        host = ""
    if not host:
        raise InvalidRequest("Type a host name, an IPv4 address or a URL.")
    return host
