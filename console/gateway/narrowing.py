"""What a request may ask of the network: less than the space's policy, never more. Pure."""

from __future__ import annotations

import ipaddress

from sandboxes.errors import SandboxError
from sandboxes.network import ALWAYS_DENIED, ANYWHERE, NetworkPolicy

__all__ = ["Forbidden", "narrow"]


class Forbidden(SandboxError):
    """The key or the space's policy does not allow it."""

    kind = "forbidden"


def narrow(
    policy: NetworkPolicy,
    *,
    outbound: bool | None,
    inbound: bool | None,
    allow: tuple[str, ...] = (),
    deny: tuple[str, ...] = (),
) -> NetworkPolicy:
    """The policy that holds if this is asked of a sandbox in a space with `policy`.

    None is no wish. Forbidden, naming the entry and the mend, for anything that the space does not
    allow; PolicyInvalid for an entry that cannot be one. What the result reaches, both reach.
    """
    closing = outbound is False or ANYWHERE in deny
    if outbound and not closing and policy.closed_by_default:
        raise Forbidden(
            "This space's policy keeps outbound closed, so allow_internet_access can't be true; leave it "
            "out, or ask the space's owner to open it."
        )
    if inbound and not policy.inbound:
        raise Forbidden(
            "This space's policy keeps inbound closed, so network.allowPublicTraffic can't be true; leave "
            "it out and send the traffic token, or ask the space's owner to open it."
        )
    wish = NetworkPolicy.parse(
        outbound=not closing and not policy.closed_by_default,
        inbound=policy.inbound if inbound is None else inbound,
        allow=allow,
        deny=deny,
    )
    for entry in wish.allow:
        _require(policy, entry)
    denied = set(policy.deny) | set(wish.deny)
    return NetworkPolicy.parse(
        outbound=wish.outbound,
        inbound=wish.inbound,
        allow=wish.allow if closing else {*_kept(policy, wish), *wish.allow},
        deny=denied - {ANYWHERE},
    )


def _kept(policy: NetworkPolicy, wish: NetworkPolicy) -> list[str]:
    """The space's allowances that the wish does not deny; an allowance would beat the denial."""
    denied = [ipaddress.IPv4Network(entry) for entry in wish.deny]
    return [
        entry
        for entry in policy.allow
        if "/" not in entry
        or not any(ipaddress.IPv4Network(entry).overlaps(block) for block in denied)
    ]


def _require(policy: NetworkPolicy, entry: str) -> None:
    if "/" in entry:
        allowed = _network_allowed(policy, ipaddress.IPv4Network(entry))
    else:
        allowed = _domain_allowed(policy, entry)
    if not allowed:
        raise Forbidden(
            f"This space's policy does not allow “{entry}”, so allowOut can't name it; leave it out, or "
            "ask the space's owner to allow it."
        )


def _network_allowed(policy: NetworkPolicy, network: ipaddress.IPv4Network) -> bool:
    if any(network.subnet_of(ipaddress.IPv4Network(entry)) for entry in policy.allowed_networks):
        return True
    if policy.closed_by_default:
        return False
    closed = [ipaddress.ip_network(entry) for entry in policy.deny]
    return not any(network.overlaps(block) for block in (*closed, *ALWAYS_DENIED))


def _domain_allowed(policy: NetworkPolicy, name: str) -> bool:
    """A name may lead to any address, so one is fine only where no address is denied."""
    if not policy.closed_by_default:
        return not policy.deny
    if name.startswith("*."):
        parents = (entry for entry in policy.allowed_domains if entry.startswith("*."))
        return any(name == entry or name.endswith(entry[1:]) for entry in parents)
    return policy.domain_allowed(name) is not None
