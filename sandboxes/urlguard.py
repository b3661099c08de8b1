"""Which addresses this product may be told to call: the guard against requests forged by settings.

An admin of one tenant types a backend's URL, and our servers then dial it from inside their network.
So a URL is judged when it is saved, and its address again on every connection, because a name may
point elsewhere a moment later (DNS rebinding). Whoever dials connects to the very address that was
judged; see `sandboxes.wire.transport`.

Never reachable: unspecified, link-local (cloud metadata lives there), multicast, broadcast and reserved
addresses, and the metadata services outside those ranges. Reachable with `allow_private` only: loopback,
RFC 1918, unique-local IPv6, carrier-grade NAT (100.64.0.0/10) and other ranges inside organisations.
An IPv4 address wrapped in IPv6 (mapped, NAT64, 6to4, Teredo) is judged as that IPv4 address.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from sandboxes.errors import InvalidRequest, Unavailable

__all__ = ["Resolver", "UrlGuard", "UrlRefused", "address_problem", "check_url", "system_resolver"]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host name, to be called on a port. OSError if there are none."""

_NEVER = tuple(
    ipaddress.ip_network(block)
    for block in (
        "0.0.0.0/8",
        "169.254.0.0/16",
        "224.0.0.0/4",
        "240.0.0.0/4",  # reserved, and the broadcast address
        "100.100.100.200/32",  # metadata services that are not link-local
        "168.63.129.16/32",
        "192.0.0.192/32",
        "::/128",
        "fe80::/10",
        "ff00::/8",
        "fd00:ec2::254/128",
        "fd20:ce::254/128",
    )
)
_PRIVATE = tuple(
    ipaddress.ip_network(block)
    for block in (
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "::1/128",
        "fc00::/7",
        "fec0::/10",
    )
)
_NAT64 = tuple(ipaddress.ip_network(block) for block in ("64:ff9b::/96", "64:ff9b:1::/48"))
_COMPATIBLE = ipaddress.ip_network("::/96")
_NUMERIC_HOST = re.compile(r"(?:.*\.)?(?:0x[0-9a-f]*|[0-9]+)\.?", re.ASCII | re.IGNORECASE)
_RESOLVE_TIMEOUT_S = 10.0


class UrlRefused(InvalidRequest):
    """The URL may not be called. The sentence says why and what to do."""


def check_url(url: str, *, allow_private: bool = False) -> SplitResult:
    """The URL in parts, if its text alone is no reason to refuse it; nothing is looked up."""
    try:
        parts = urlsplit(url.strip())
        host, _ = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        raise UrlRefused(f"“{url}” is no URL; give one such as https://host:8443.") from None
    if parts.scheme not in ("http", "https"):
        raise UrlRefused(f"“{url}” must start with https:// or http://.")
    if "@" in parts.netloc:
        raise UrlRefused("A URL may hold no user name or password; use the fields for credentials.")
    if not host or re.search(r"[\s\\%]", parts.netloc.partition("%25")[0]):
        raise UrlRefused(f"“{url}” names no host; give one such as https://host:8443.")
    if host == "local" or host.endswith(".local"):
        raise UrlRefused(
            f"{host} is a name of the local network only (.local); give an address or a real name."
        )
    if (host == "localhost" or host.endswith(".localhost")) and not allow_private:
        raise UrlRefused(_private_sentence(host))
    if (literal := _literal(host)) is not None:
        if problem := address_problem(str(literal), allow_private=allow_private):
            raise UrlRefused(problem)
    elif _NUMERIC_HOST.fullmatch(host):
        raise UrlRefused(f"“{host}” is no plain address; write it as four decimal numbers.")
    return parts


def address_problem(address: str, *, allow_private: bool = False) -> str | None:
    """Why this address may not be called, as a sentence, or None if it may."""
    ip = _unwrapped(ipaddress.ip_address(address))
    if any(ip in block for block in _NEVER):
        return (
            f"{address} is never called: link-local, metadata, multicast and reserved addresses "
            "are closed; give the address of the service itself."
        )
    if not allow_private and any(ip in block for block in _PRIVATE):
        return _private_sentence(address)
    return None


def _private_sentence(what: str) -> str:
    return (
        f"{what} is a private address; allow private addresses for this backend if it really "
        "runs in your own network."
    )


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _unwrapped(ip: Address) -> Address:
    if isinstance(ip, ipaddress.IPv4Address):
        return ip
    if ip.ipv4_mapped is not None:
        return ip.ipv4_mapped
    if ip.sixtofour is not None:
        return ip.sixtofour
    if ip.teredo is not None:
        return ip.teredo[1]
    low = int(ip) & 0xFFFFFFFF
    if any(ip in block for block in _NAT64) or (ip in _COMPATIBLE and low > 1):
        return ipaddress.IPv4Address(low)
    return ip


async def system_resolver(host: str, port: int) -> Sequence[str]:
    """As the operating system resolves it."""
    async with asyncio.timeout(_RESOLVE_TIMEOUT_S):
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(item[4][0]) for item in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlGuard:
    """One backend's rule. `resolve` is replaced in tests."""

    allow_private: bool = False
    resolve: Resolver = field(default=system_resolver, compare=False)

    async def check(self, url: str) -> None:
        """For a URL that is about to be saved. UrlRefused also if its name has no address."""
        parts = check_url(url, allow_private=self.allow_private)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            await self.addresses(parts.hostname or "", port)
        except Unavailable as error:
            raise UrlRefused(error.message, detail=error.detail) from error

    async def addresses(self, host: str, port: int) -> tuple[str, ...]:
        """The addresses to connect to, every one of them judged.

        UrlRefused if any may not be called: a name that points to both sides is no honest name.
        Unavailable if the name has no address just now.
        """
        try:
            found = [host] if _literal(host) is not None else await self.resolve(host, port)
        except (OSError, UnicodeError, TimeoutError) as error:
            raise _unresolved(host, f"{type(error).__name__}: {error}") from error
        addresses = tuple(dict.fromkeys(found))
        if not addresses:
            raise _unresolved(host, "no addresses")
        for address in addresses:
            if problem := address_problem(address, allow_private=self.allow_private):
                named = "" if address == host else f"{host} points to {address}. "
                raise UrlRefused(f"{named}{problem}", detail=f"{host} -> {addresses}")
        return addresses


def _unresolved(host: str, detail: str) -> Unavailable:
    return Unavailable(
        f"The name {host} has no address; check its spelling and the DNS.", detail=detail
    )
