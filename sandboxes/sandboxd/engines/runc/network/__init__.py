"""The network of each sandbox of the runc engine: its namespace, what it may reach, and the way in.

A sandbox's network namespace belongs to the host's user namespace, so no program in the sandbox,
root included, can change a rule, an address or a route in it. The policy is enforced in there by
nftables (addresses), by a forward proxy (names), or by there being nothing but loopback.
"""

from sandboxes.sandboxd.engines.runc.network.network import Network
from sandboxes.sandboxd.engines.runc.network.proxy import Denial

__all__ = ["Denial", "Network"]
