"""The pair of virtual interfaces between the host and a sandbox's namespace."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path

from sandboxes.errors import Internal
from sandboxes.sandboxd.engines.runc.network.host import Host
from sandboxes.sandboxd.engines.runc.network.interfaces import (
    add_default_route,
    bring_up,
    set_address,
)
from sandboxes.sandboxd.engines.runc.network.namespaces import in_namespace, run_tool
from sandboxes.sandboxd.engines.runc.waiting import run_to_end

__all__ = ["Link", "remove_link"]

_INSIDE = "eth0"


@dataclass(frozen=True, slots=True)
class Link:
    """Slot n of a pool has the addresses 2n (the host's end) and 2n+1 (the sandbox's), a /31."""

    name: str
    gateway: ipaddress.IPv4Address
    address: ipaddress.IPv4Address

    @classmethod
    def of_slot(cls, host: Host, slot: int) -> Link:
        first = host.pool.network_address + 2 * slot
        return cls(f"{host.links}{slot:x}", first, first + 1)

    async def is_whole(self, namespace: Path) -> bool:
        """Whether it was made to the end: the route inside is the last of it."""
        if not _exists(self.name):
            return False
        routes = await in_namespace(namespace, Path("/proc/thread-self/net/route").read_text)
        return any(line.split()[1] == "00000000" for line in routes.splitlines()[1:])

    async def create(self, namespace: Path) -> None:
        """Replaces what a crash left under its name."""
        await run_to_end(self._create_outside, namespace)
        await in_namespace(namespace, self._configure_inside)

    async def remove(self) -> None:
        """Idempotent. Both ends are gone when this returns."""
        await run_to_end(remove_link, self.name)

    def _create_outside(self, namespace: Path) -> None:
        if _exists(self.name):
            remove_link(self.name)
        commands = (
            f"link add {self.name} type veth peer name {_INSIDE} netns {namespace}",
            f"link set {self.name} addrgenmode none",
            f"address add {self.gateway}/31 dev {self.name}",
            f"link set {self.name} up",
        )
        run_tool("ip", "-batch", "-", script="\n".join(commands) + "\n")

    def _configure_inside(self) -> None:
        set_address(_INSIDE, ipaddress.IPv4Interface((self.address, 31)))
        bring_up(_INSIDE)
        add_default_route(self.gateway)


def remove_link(name: str) -> None:
    """Idempotent. Blocks."""
    try:
        run_tool("ip", "link", "delete", name)
    except Internal:
        if _exists(name):
            raise


def _exists(name: str) -> bool:
    try:
        socket.if_nametoindex(name)
    except OSError:
        return False
    return True
