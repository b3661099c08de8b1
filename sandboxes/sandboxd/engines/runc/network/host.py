"""What the host needs for sandboxes with a link: forwarding, our own table, and a way past a
firewall that drops forwarded packets (Docker's and ufw's do). All of it goes with the last link,
but `ip_forward` stays on: others may have come to rely on it."""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sandboxes.errors import Internal, Unsupported
from sandboxes.sandboxd.engines.runc.network.namespaces import run_tool
from sandboxes.sandboxd.engines.runc.network.rules import (
    VETH_PREFIX,
    delete_table,
    host_ruleset,
)
from sandboxes.sandboxd.engines.runc.waiting import run_to_end

__all__ = ["Host"]

_IP_FORWARD = Path("/proc/sys/net/ipv4/ip_forward")


class Host:
    """`tag` tells the tables and links of this sandboxd from those of another on the same host."""

    def __init__(self, *, tag: str, pool: ipaddress.IPv4Network) -> None:
        self.tag = tag
        self.pool = pool
        self.links = f"{VETH_PREFIX}{tag}"
        self._table = f"skillyard_{tag}"
        self._lock = asyncio.Lock()
        self._enabled = False

    async def enable(self, resolvers: Sequence[str]) -> None:
        """Idempotent; free while it is enabled already."""
        async with self._lock:
            if not self._enabled:
                await run_to_end(self._enable, resolvers)
                self._enabled = True

    async def restore(self, resolvers: Sequence[str]) -> None:
        """Put back what somebody flushed, and go past a firewall that was started meanwhile. Does
        nothing while it is not enabled."""
        async with self._lock:
            if self._enabled:
                await run_to_end(self._enable, resolvers)

    async def disable(self) -> None:
        """Idempotent."""
        async with self._lock:
            self._enabled = False
            await run_to_end(self._disable)

    def link_names(self) -> list[str]:
        """The links of this sandboxd that exist. Blocks."""
        names = (link["ifname"] for link in _ip_json("link", "show", "type", "veth"))
        return [name for name in names if name.startswith(self.links)]

    def overlap(self) -> str | None:
        """A route of the host that the pool meets. Blocks."""
        for route in _ip_json("-4", "route", "show"):
            if route["dst"] == "default":
                continue
            network = ipaddress.ip_network(route["dst"])
            # A pair of addresses in the pool is a link's, of this sandboxd or another.
            if network.overlaps(self.pool) and network.prefixlen != 31:
                return f"{network} on {route.get('dev', 'no device')}"
        return None

    def slots_in_use(self) -> set[int]:
        """The pairs of addresses of the pool that links of any sandboxd have. Blocks."""
        lines = Path("/proc/net/route").read_text().splitlines()[1:]
        words = [int(line.split()[1], 16).to_bytes(4, "little") for line in lines]
        routes = (ipaddress.IPv4Address(word) for word in words)
        first = int(self.pool.network_address)
        return {(int(route) - first) // 2 for route in routes if route in self.pool}

    def _enable(self, resolvers: Sequence[str]) -> None:
        if (found := self.overlap()) is not None:
            raise Unsupported(
                f"The sandboxes' network {self.pool} overlaps the host's route {found}; "
                "give sandboxd another pool"
            )
        if _IP_FORWARD.read_text().strip() != "1":
            _IP_FORWARD.write_text("1")
        ruleset = host_ruleset(
            self._table, links=self.links, pool=str(self.pool), resolvers=resolvers
        )
        run_tool("nft", "-f", "-", script=ruleset)
        self._accept_forwarding()

    def _disable(self) -> None:
        run_tool("nft", "-f", "-", script=delete_table(self._table))
        for chain in ("DOCKER-USER", "FORWARD"):
            for rule in self._our_rules(chain):
                run_tool("nft", "delete", "rule", "ip", "filter", chain, "handle", str(rule))

    def _accept_forwarding(self) -> None:
        """An accept in our own table does not outvote a drop in another, so where iptables' filter
        table drops by default, our links are let through there; our table still judges them."""
        if not _drops(_nft_json("list", "chain", "ip", "filter", "FORWARD")):
            return
        chain = "DOCKER-USER" if _nft_json("list", "chain", "ip", "filter", "DOCKER-USER") else ""
        chain = chain or "FORWARD"
        if self._our_rules(chain):
            return
        # Only expressions that iptables itself could have written, so that it can still list them.
        script = "".join(
            f'insert rule ip filter {chain} {direction} "{self.links}*" counter accept '
            f'comment "{self._table}"\n'
            for direction in ("iifname", "oifname")
        )
        run_tool("nft", "-f", "-", script=script)

    def _our_rules(self, chain: str) -> list[int]:
        rules = (item.get("rule") for item in _nft_json("list", "chain", "ip", "filter", chain))
        return [rule["handle"] for rule in rules if rule and rule.get("comment") == self._table]


def _drops(chain: list[dict[str, Any]]) -> bool:
    return any(item.get("chain", {}).get("policy") == "drop" for item in chain)


def _nft_json(*argv: str) -> list[dict[str, Any]]:
    """Empty if the object does not exist."""
    try:
        items: list[dict[str, Any]] = json.loads(run_tool("nft", "-j", *argv))["nftables"]
    except Internal:
        return []
    return items


def _ip_json(*argv: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run_tool("ip", "-j", *argv) or "[]")
    return [item for item in found if item]
