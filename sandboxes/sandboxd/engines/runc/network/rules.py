"""The nftables rule sets, as text: one for each sandbox's own namespace, one for the host.

Denials are always `reject`: a dropped packet would make programs wait for minutes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

from sandboxes.network import ALWAYS_DENIED, LINK_LOCAL, NetworkPolicy

__all__ = [
    "SANDBOX_TABLE",
    "VETH_PREFIX",
    "delete_table",
    "host_ruleset",
    "needs_link",
    "needs_proxy",
    "sandbox_ruleset",
]

SANDBOX_TABLE = "skillyard"
VETH_PREFIX = "sy"
"""Every sandbox's link on the host, of any sandboxd, begins with this."""

# A reset also ends connections that a new policy forbids; they would otherwise linger for minutes.
_REFUSE = """  chain refuse {
    meta l4proto tcp reject with tcp reset
    reject with icmpx admin-prohibited
  }
"""


def needs_link(policy: NetworkPolicy) -> bool:
    """Whether anything may be reached by address; without it a sandbox has only loopback."""
    return not policy.closed_by_default or bool(policy.allowed_networks)


def needs_proxy(policy: NetworkPolicy) -> bool:
    """Whether something may be reached by name only."""
    return bool(policy.allowed_domains)


def sandbox_ruleset(policy: NetworkPolicy, resolvers: Sequence[str]) -> str:
    """Replaces what is there in one transaction. The order is that of `decide_address`, but that
    the host's resolver is open for DNS whenever names may be resolved at all: it is a service of
    the host, like the route. Packets are judged one by one, so that a change is felt by
    connections that exist."""
    output = ['oifname "lo" accept', f"ip daddr {LINK_LOCAL} goto refuse"]
    if policy.allowed_networks:
        output.append(f"ip daddr {_set(policy.allowed_networks)} accept")
    if resolvers and not policy.closed_by_default:
        output += _dns(resolvers)
    if policy.deny:
        output.append(f"ip daddr {_set(policy.deny)} goto refuse")
    output.append(f"ip daddr {_set(str(block) for block in ALWAYS_DENIED)} goto refuse")
    if not policy.closed_by_default:
        output.append("meta nfproto ipv4 accept")
    output.append("goto refuse")
    chains = [
        _chain("filter hook output priority filter", output),
        _chain(
            "filter hook input priority filter",
            ['iifname "lo" accept', "ct state established,related accept", "drop"],
        ),
    ]
    return _table(SANDBOX_TABLE, chains)


def host_ruleset(table: str, *, links: str, pool: str, resolvers: Sequence[str]) -> str:
    """`links` is the prefix of the links of this sandboxd. A sandbox reaches neither the host
    itself (DNS of a local resolver excepted) nor another sandbox, and nothing on the host or
    beyond it opens a connection to one."""
    ours, any_sandbox = f'iifname "{links}*"', f'oifname "{VETH_PREFIX}*"'
    to_ours = f'oifname "{links}*"'
    answers = "ct state established,related accept"
    chains = [
        _chain(
            "filter hook prerouting priority mangle",
            [
                f"{ours} meta nfproto ipv6 drop",
                f"{ours} fib saddr . iif oif missing drop",
                # Here, before Docker sends a published port of the host on to a container.
                *(f"{ours} {rule}" for rule in _dns(resolvers)),
                f"{ours} fib daddr type local goto refuse",
            ],
        ),
        _chain(
            "filter hook input priority filter",
            [
                f"{ours} {answers}",
                *(f"{ours} {rule}" for rule in _dns(resolvers)),
                f"{ours} goto refuse",
            ],
        ),
        _chain(
            "filter hook forward priority filter",
            [
                f"{ours} {any_sandbox} goto refuse",
                f"{ours} ip daddr {LINK_LOCAL} goto refuse",
                f"{ours} accept",
                f"{to_ours} {answers}",
                f"{to_ours} goto refuse",
            ],
        ),
        _chain(
            "filter hook output priority filter",
            [f"{to_ours} {answers}", f"{to_ours} goto refuse"],
        ),
        _chain(
            "nat hook postrouting priority srcnat",
            [f'ip saddr {pool} oifname != "{VETH_PREFIX}*" masquerade'],
        ),
    ]
    return _table(table, chains)


def delete_table(table: str) -> str:
    """Deletes it whether or not it is there."""
    return f"table inet {table}\ndelete table inet {table}\n"


def _dns(resolvers: Sequence[str]) -> list[str]:
    if not resolvers:
        return []
    return [f"ip daddr {_set(resolvers)} {kind} dport 53 accept" for kind in ("udp", "tcp")]


def _set(blocks: Iterable[str]) -> str:
    """Without overlaps, which an interval set refuses."""
    networks = ipaddress.collapse_addresses(ipaddress.IPv4Network(block) for block in blocks)
    return "{ " + ", ".join(str(network) for network in networks) + " }"


def _chain(kind: str, rules: Iterable[str]) -> str:
    """Named after its hook: a chain can't change it, so rules of a newer version need a new chain (the
    old one stays, empty)."""
    name = kind.partition(" hook ")[2].replace(" priority ", "_")
    body = "".join(f"    {rule}\n" for rule in rules)
    return f"  chain {name} {{\n    type {kind}; policy accept;\n{body}  }}\n"


def _table(name: str, chains: Iterable[str]) -> str:
    """Replaces the rules of a table that exists. Its hooks stay: to free one, the kernel waits for
    several milliseconds."""
    empty = f"table inet {name}\nflush table inet {name}\n"
    return f"{empty}table inet {name} {{\n{_REFUSE}{''.join(chains)}}}\n"
