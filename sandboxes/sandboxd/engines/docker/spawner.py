"""The resident spawner, for containers that share the host's user namespace.

Docker maps no users unless its daemon is told to (`userns-remap`), while the spawner of the runc
engine enters a user namespace and sets limits of that namespace. For a container without one those
two steps must not be done: the kernel refuses to enter the namespace that one is in, and the limits
would be the host's own. Everything else is the same: cgroup, other namespaces, capabilities,
seccomp filter.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import sys
from pathlib import Path

from sandboxes.sandboxd.engines.runc import seccomp, spawning
from sandboxes.sandboxd.engines.runc.bundle import CAPABILITIES
from sandboxes.sandboxd.engines.runc.records import process_start, write_json

__all__ = ["HostUsersSpawner"]

_BOOT = """
import sys
sys.path.append(sys.argv[1])
from spawner import entry, kernel
kernel._ALL_NAMESPACES &= ~0x10000000
entry._NAMESPACE_LIMITS.clear()
from spawner.main import main
main()
"""


class HostUsersSpawner(spawning.SpawnerClient):
    async def _ensure(self) -> None:
        if self._socket is not None:
            return
        if self._process is not None:
            await self._process.wait()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c", _BOOT, str(Path(spawning.__file__).parent)),
                str(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                env={},
            )
        pid = self._process.pid
        write_json(self._pid_file, {"pid": pid, "start": process_start(pid)})
        ours.setblocking(False)
        self._socket = ours
        asyncio.get_running_loop().add_reader(ours, self._hear)
        program = base64.b64encode(await asyncio.to_thread(seccomp.compiled)).decode()
        capabilities = sorted(CAPABILITIES.values())
        await self._send({"op": "configure", "capabilities": capabilities, "seccomp": program}, [])
