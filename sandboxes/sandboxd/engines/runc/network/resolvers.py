"""The host's DNS resolvers, as a sandbox can reach them."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from sandboxes.network import LINK_LOCAL

__all__ = ["Resolvers"]

# systemd-resolved's stub listens on loopback, and lists the real ones here.
_FILES = (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf"))


class Resolvers:
    """`addresses` may be empty; `note` then says why names do not resolve in sandboxes."""

    def __init__(self, files: tuple[Path, ...] = _FILES) -> None:
        self.addresses: tuple[str, ...] = ()
        seen: list[str] = []
        for path in files:
            found = _nameservers(path)
            self.addresses = tuple(address for address in found if _reachable(address))
            if self.addresses:
                break
            seen += found
        self.note = "" if self.addresses else _reason(seen)

    def resolv_conf(self) -> str:
        if not self.addresses:
            return "# The host has no resolver that a sandbox can reach.\n"
        return "".join(f"nameserver {address}\n" for address in self.addresses)


def _nameservers(path: Path) -> list[str]:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return []
    words = (line.split() for line in lines)
    return [line[1] for line in words if len(line) >= 2 and line[0] == "nameserver"]


def _reachable(address: str) -> bool:
    try:
        ip = ipaddress.IPv4Address(address)
    except ValueError:
        return False
    return not (ip.is_loopback or ip.is_unspecified or ip in LINK_LOCAL)


def _reason(seen: list[str]) -> str:
    listed = ", ".join(seen) or "none"
    return (
        f"Names do not resolve in sandboxes: the host's resolvers ({listed}) are not reachable "
        "from them; add an IPv4 resolver that is not on loopback to /etc/resolv.conf"
    )
