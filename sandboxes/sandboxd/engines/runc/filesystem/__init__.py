"""The files of one sandbox, read and written by sandboxd from outside.

sandboxd is the host's root and the tree belongs to whoever controls the sandbox, so nothing here
trusts a path. `root.py` resolves every name in the kernel, below the sandbox's root; the other
modules only act on descriptors that it returned.
"""

from sandboxes.sandboxd.engines.runc.filesystem.runc import RuncFileSystem

__all__ = ["RuncFileSystem"]
