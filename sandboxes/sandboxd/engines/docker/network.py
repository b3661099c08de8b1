"""The network of each container of an engine on this host.

Docker gives a container an empty network namespace (`none`) and nothing else; the link, the rules
and the proxy in it are those of the runc engine. Docker's own bridge and iptables rules are not
involved, so that what a policy forbids does not depend on how Docker was started.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from pathlib import Path

from sandboxes.network import NetworkPolicy
from sandboxes.sandboxd.engines.runc.network import Network
from sandboxes.sandboxd.engines.runc.network.records import Record
from sandboxes.sandboxd.engines.runc.waiting import run_to_end

__all__ = ["ContainerNetwork"]

_MS_BIND = 0x1000
_libc = ctypes.CDLL(None, use_errno=True)


class ContainerNetwork(Network):
    async def attach(self, sandbox_id: str, policy: NetworkPolicy, *, pid: int) -> None:
        """Take the network namespace of a new container's init and lay the policy in it. Nothing
        else may run in the container yet. All or nothing."""
        async with self._locks[sandbox_id]:
            record = Record(policy=policy)
            self._records.put(sandbox_id, record)
            try:
                await run_to_end(_bind, pid, self._records.namespace(sandbox_id))
                await self._lay(sandbox_id, record, policy, running=False)
            except BaseException:
                await asyncio.shield(self._remove(sandbox_id))
                raise

    def resolver_addresses(self) -> tuple[str, ...]:
        return self._resolvers.addresses


def _bind(pid: int, path: Path) -> None:
    path.touch(mode=0o600, exist_ok=True)
    source = f"/proc/{pid}/ns/net".encode()
    if _libc.mount(source, os.fsencode(path), None, _MS_BIND, None) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), str(path))
