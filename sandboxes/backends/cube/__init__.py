"""CubeSandbox, versions 0.5 to 0.8: E2B-shaped REST with its own timing, codes and gaps.

Its sandboxes carry envd, so the data plane is the wire client's; everything that differs is here.
"""

from sandboxes.backends.cube.settings import Settings, open_client

__all__ = ["Settings", "open_client"]
