"""What the host needs for sandboxes with a link: forwarding, our own table, and a way past a
firewall that drops forwarded packets (Docker's and ufw's do). All of it goes with the last link,
but `ip_forward` stays on: others may have come to rely on it."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import time
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
_RECHECK_S = 60.0


class Host:
    """`tag` tells the tables and links of this sandboxd from those of another on the same host."""

    def __init__(self, *, tag: str, pool: ipaddress.IPv4Network) -> None:
        self.tag = tag
        self.pool = pool
        self.links = f"{VETH_PREFIX}{tag}"
        self._table = f"skillyard_{tag}"
        self._lock = asyncio.Lock()
        self._checked_at = float("-inf")

    async def enable(self, resolvers: Sequence[str], *, force: bool = False) -> None:
        """Idempotent, and cheap when it was called lately: a firewall that was started meanwhile
        is noticed after a minute at most."""
        async with self._lock:
            if force or time.monotonic() - self._checked_at > _RECHECK_S:
                await run_to_end(self._enable, resolvers)
                self._checked_at = time.monotonic()

    async def disable(self) -> None:
        """Idempotent."""
        async with self._lock:
            self._checked_at = float("-inf")
            await run_to_end(self._disable)

    def link_names(self) -> list[str]:
        """The links of this sandboxd that exist. Blocks."""
        names = (link["ifname"] for link in _ip_json("link", "show", "type", "veth"))
        return [name for name in names if name.startswith(self.links)]

    def overlap(self) -> str | None:
        """A route of the host inside our pool, or one that the pool is inside of. Blocks."""
        for route in _ip_json("-4", "route", "show", "table", "all"):
            if route["dst"] == "default" or route.get("dev", "").startswith(VETH_PREFIX):
                continue
            if ipaddress.ip_network(route["dst"]).overlaps(self.pool):
                return f"{route['dst']} on {route.get('dev', 'no device')}"
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
