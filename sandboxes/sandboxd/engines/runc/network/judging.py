"""What the proxy of one sandbox lets through, and what it refused lately.

A name that the policy allows is resolved here, on the host, at the moment of dialling, and dialled
by the address that was judged. A name is the owner's word for a service on the internet, so it
opens neither a private address, nor the host's own, nor one that means "this machine".
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

from sandboxes.network import ALWAYS_DENIED, NetworkPolicy, Verdict

__all__ = ["Denial", "Judge", "Refused", "Resolve", "Route", "Unreachable", "resolve_on_host"]

Resolve = Callable[[str], Awaitable[list[str]]]

_RESOLVE_TIMEOUT_S = 10.0
_RESOLVING_AT_ONCE = 4
_REMEMBERED = 100
# Their own threads: a name server that never answers must not hold other work of sandboxd.
_resolver_threads = ThreadPoolExecutor(max_workers=16, thread_name_prefix="sandbox-dns")

_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """`rule` is the deciding entry, "outbound" for the switch, "built-in" for fixed ranges."""

    at: datetime
    host: str
    port: int
    rule: str


@dataclass(frozen=True, slots=True)
class Route:
    """Where to dial for `host`: every address in it may be reached."""

    host: str
    port: int
    addresses: tuple[str, ...]


class Refused(Exception):
    """By the policy; the text is for the program in the sandbox."""


class Unreachable(Exception):
    """Allowed, but there is no way there; the text is for the program in the sandbox."""


async def resolve_on_host(name: str) -> list[str]:
    """The IPv4 addresses of a name. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(
        _resolver_threads, socket.getaddrinfo, name, None, socket.AF_INET, socket.SOCK_STREAM
    )
    return [str(address[0]) for _, _, _, _, address in found]


class Judge:
    def __init__(self, policy: NetworkPolicy, resolve: Resolve) -> None:
        self.policy = policy
        self._resolve = resolve
        self._resolving = asyncio.Semaphore(_RESOLVING_AT_ONCE)
        self._denials: deque[Denial] = deque(maxlen=_REMEMBERED)
        self.allowed_count = 0
        self.denied_count = 0

    def recent_denials(self) -> list[Denial]:
        """Oldest first."""
        return list(self._denials)

    async def route(self, host: str, port: int) -> Route:
        """Raises Refused or Unreachable."""
        host = host.rstrip(".").lower()
        if _is_address(host):
            decision = self.policy.decide_address(host)
            if decision.verdict is not Verdict.ALLOWED or not self._may_dial(host):
                raise self._refused(host, port, decision.rule)
            addresses: list[str] = [host]
        else:
            if not self._may_resolve(host):
                raise self._refused(host, port, "outbound")
            found = await self._addresses(host)
            addresses = [address for address in found if self.still_allows(host, address)]
            if not addresses:
                raise self._refused(host, port, "built-in")
        self.allowed_count += 1
        return Route(host, port, tuple(addresses))

    def still_allows(self, host: str, address: str) -> bool:
        """Whether a connection that exists may go on under the policy as it is now."""
        if _is_address(host):
            return self.policy.decide_address(host).verdict is Verdict.ALLOWED
        if self.policy.domain_allowed(host) is not None:
            return self._may_dial(address)
        decision = self.policy.decide_address(address)
        return (
            self._may_resolve(host)
            and decision.verdict is Verdict.ALLOWED
            and self._may_dial(address)
        )

    def _may_resolve(self, host: str) -> bool:
        """While only listed names are open, asking for another would itself carry data out."""
        return not self.policy.closed_by_default or self.policy.domain_allowed(host) is not None

    async def _addresses(self, host: str) -> list[str]:
        try:
            async with asyncio.timeout(_RESOLVE_TIMEOUT_S), self._resolving:
                return await self._resolve(host)
        except (OSError, TimeoutError, UnicodeError) as error:
            raise Unreachable(f"{host} could not be resolved; check the name") from error

    def _may_dial(self, address: str) -> bool:
        ip = ipaddress.IPv4Address(address)
        if ip in _THIS_NETWORK or ip.is_multicast or ip.is_reserved or _is_our_own(address):
            return False
        if any(ip in block for block in ALWAYS_DENIED):
            return self.policy.decide_address(address).verdict is Verdict.ALLOWED
        return True

    def _refused(self, host: str, port: int, rule: str) -> Refused:
        self.denied_count += 1
        self._denials.append(Denial(at=datetime.now(UTC), host=host, port=port, rule=rule))
        if rule == "built-in":
            return Refused(f"{host} is a private address, which this sandbox may not reach")
        return Refused(
            f"{host} is not in this sandbox's allow list; ask the space's owner to allow it"
        )


def _is_address(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def _is_our_own(address: str) -> bool:
    """Only an address of this host can be bound."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
