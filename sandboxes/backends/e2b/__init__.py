"""E2B's cloud, self-hosted and compatible servers, and sandboxd: all that speak the E2B protocol.

The protocol has no word for what a server can do. sandboxd says so on a route of its own, read once
when the client is opened; of any other server the published behaviour of E2B is assumed.
"""

from sandboxes.backends.e2b.client import E2B_CAPABILITIES, E2BClient
from sandboxes.backends.e2b.settings import Settings, open_client

__all__ = ["E2B_CAPABILITIES", "E2BClient", "Settings", "open_client"]
