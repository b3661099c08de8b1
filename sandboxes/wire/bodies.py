"""The bodies that the control plane is sent: a create, and the network policy in the protocol's words."""

from __future__ import annotations

import math
from typing import Literal

from sandboxes.network import ANYWHERE, NetworkPolicy
from sandboxes.types import CreateRequest, OnTimeout
from sandboxes.wire.messages import NetworkConfig, NewSandbox

__all__ = ["Routes", "egress", "network_update", "new_sandbox"]

Routes = Literal["v1", "v2"]
"""SDKs since 2.51 create and connect under /v2; many compatible servers have only the older routes."""


def new_sandbox(request: CreateRequest, *, routes: Routes) -> NewSandbox:
    """The body of a create. Both network switches are always in it: no default is inherited."""
    network = request.network
    body = NewSandbox(
        templateID=request.template,
        timeout=math.ceil(request.timeout.timeout_s),
        autoPause=request.timeout.on_timeout is OnTimeout.PAUSE,
        autoResume={"enabled": request.timeout.auto_resume},
        allow_internet_access=not network.closed_by_default,
        network={"allowPublicTraffic": network.inbound, **egress(network)},
        metadata=dict(request.metadata),
        envVars=dict(request.env),
    )
    if routes == "v1":
        body["secure"] = True  # in v2 every sandbox is
    return body


def network_update(policy: NetworkPolicy) -> NetworkConfig:
    """The body of a runtime update, which replaces all that went before. Inbound is not in it: the
    protocol fixes that at create."""
    return {"allow_internet_access": not policy.closed_by_default, **egress(policy)}


def egress(policy: NetworkPolicy) -> NetworkConfig:
    """The two lists. A policy closed by default says so in the deny list as well as in the switch,
    because domains in the allow list are accepted only beside 0.0.0.0/0 there."""
    denied = set(policy.deny)
    if policy.closed_by_default:
        denied.add(ANYWHERE)
    return {"allowOut": [*policy.allow], "denyOut": sorted(denied)}
