"""Reaching into containers on this host through the kernel, as the runc engine does.

A command is started by the resident spawner, straight into the container's namespaces and into a
control group of its own: in a few milliseconds, and killed with all its descendants by one write.
Docker's own exec takes ten times as long, hides how a command ends while children hold its pipes,
and leaves it running when its caller goes away.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sandboxes.capabilities import Capabilities
from sandboxes.errors import Conflict, Internal, NotFound, Terminal
from sandboxes.network import NetworkPolicy
from sandboxes.sandboxd.engines.base import (
    Connection,
    FileSystem,
    ProcessSpec,
    RunningProcess,
    Usage,
)
from sandboxes.sandboxd.engines.docker import remote_exec
from sandboxes.sandboxd.engines.docker.api import Api
from sandboxes.sandboxd.engines.docker.network import ContainerNetwork
from sandboxes.sandboxd.engines.docker.reach import Reach
from sandboxes.sandboxd.engines.docker.records import ContainerRecord, Paths
from sandboxes.sandboxd.engines.runc import execution, sandbox
from sandboxes.sandboxd.engines.runc.cgroups import Cgroups, SandboxCgroup
from sandboxes.sandboxd.engines.runc.commands import host_errors
from sandboxes.sandboxd.engines.runc.filesystem import RuncFileSystem
from sandboxes.sandboxd.engines.runc.host import make_room_for_watches
from sandboxes.sandboxd.engines.runc.records import Phase, SandboxRecord, boot_id, process_start
from sandboxes.sandboxd.engines.runc.spawner.kernel import new_session_keyring
from sandboxes.sandboxd.engines.runc.spawning import SpawnerClient
from sandboxes.sandboxd.engines.runc.usage import measure
from sandboxes.words import gettext_noop as _

__all__ = ["LocalReach", "cgroup_parent"]

_RUN_DIR = Path("/run/skillyard")
_SYSCTLS = {
    # Root in the sandbox holds no capability over its network; it may serve on port 80 all the same.
    "net.ipv4.ip_unprivileged_port_start": "0",
    "net.ipv6.conf.all.disable_ipv6": "1",
    "net.ipv6.conf.default.disable_ipv6": "1",
}


def cgroup_parent(key: str) -> str:
    """Below each hierarchy's root, the cgroup of this sandboxd's containers."""
    return f"skillyard-{key}"


_UNMAPPED = _(
    "Root in a sandbox is the host's root without its powers, and shares its number of file watches; "
    "set userns-remap in Docker's daemon.json."
)


class _Entered(sandbox.RuncSandbox):
    """A container, as what is entered and looked at through the kernel. Docker makes and ends it."""

    def __init__(self, record: SandboxRecord, paths: Paths, cgroup: SandboxCgroup) -> None:
        super().__init__(record, sandbox.Paths(paths.data), cgroup)
        self.id_shift = _id_shift(record.init_pid)

    @property
    def upper(self) -> Path:
        """For the size of the disk alone."""
        return self._folder

    def open_root(self) -> int:
        try:
            fd = os.open(
                f"/proc/{self.record.init_pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
            )
        except OSError:
            fd = -1
        # Looked at afterwards: then the pid was still its own when the root was opened.
        if fd < 0 or self.dead():
            if fd >= 0:
                os.close(fd)
            raise NotFound(f"There is no sandbox {self.id}; it was destroyed.")
        return fd


class LocalReach(Reach):
    """`mapped`: the daemon maps the users of containers (`userns-remap`). `exec_by`: it must start
    commands itself, or they would lack a profile that it has put on the container."""

    def __init__(self, paths: Paths, *, key: str, mapped: bool, exec_by: Api | None = None) -> None:
        self._exec_by = exec_by
        self._mapped = mapped
        self._paths = paths
        self._key = key
        self._spawner = SpawnerClient(paths.spawner, own_users=mapped)
        self._network_dir = _RUN_DIR / f"network-{key}"
        self._network = ContainerNetwork(self._network_dir)
        self._cgroups: Cgroups
        self._entered: dict[str, _Entered] = {}

    def capabilities(self) -> Capabilities:
        network = self._network.capabilities()
        return Capabilities(
            files=True,
            snapshots=True,
            snapshot_keeps_processes=False,
            templates=True,
            pause=False,
            idle_timeout=True,
            outbound_switch=network["outbound_switch"],
            outbound_cidr_lists=network["outbound_cidr_lists"],
            outbound_domain_lists=network["outbound_domain_lists"],
            private_ranges_closed=True,
            inbound_switch=True,
            inbound_token=True,
            network_update=network["network_update"],
            terminal=True,
            resource_limits=True,
            notes=self._network.notes() | ({} if self._mapped else {"resource_limits": _UNMAPPED}),
        )

    def prepare(self) -> None:
        self._cgroups = Cgroups.probe("")
        make_room_for_watches()
        # What runs below us inherits it, so it must hold nothing of whoever started us.
        new_session_keyring()
        self._spawner.end_stale()

    async def start(self, live: Iterable[str]) -> None:
        await self._network.start(set(live))
        for entered in self._entered.values():
            entered.proxy_env = self._network.proxy_env(entered.id)
        await self._spawner.start()

    async def aclose(self) -> None:
        await self._spawner.aclose()
        await self._network.aclose()
        if not self._entered:
            dataclasses.replace(self._cgroups, parent=cgroup_parent(self._key)).remove_parent()
        for entered in self._entered.values():
            entered.let_go()
        self._entered.clear()

    def host_config(self, policy: NetworkPolicy) -> Mapping[str, Any]:
        ipv6 = Path("/proc/sys/net/ipv6").exists()
        return {
            "NetworkMode": "none",
            "Dns": list(self._network.resolver_addresses()),
            "DnsSearch": ["."],
            "Sysctls": {k: v for k, v in _SYSCTLS.items() if ipv6 or "ipv6" not in k},
        }

    async def adopt(self, record: ContainerRecord, state: Mapping[str, Any]) -> bool:
        entered = self._enter(record, state)
        if entered.dead():
            return False
        self._entered[record.id] = entered
        return True

    async def attach(self, record: ContainerRecord, state: Mapping[str, Any]) -> None:
        entered = self._enter(record, state)
        self._entered[record.id] = entered
        if entered.dead():
            raise Internal(f"The container of {record.id} ended at once; see `docker logs`.")
        await self._network.attach(record.id, record.network, pid=entered.record.init_pid)
        entered.proxy_env = self._network.proxy_env(record.id)

    async def detach(self, sandbox_id: str) -> None:
        entered = self._entered.pop(sandbox_id, None)
        await self._network.destroy(sandbox_id)
        if entered is not None:
            entered.let_go()
            await entered.cgroup.remove()

    async def dead(self, record: ContainerRecord) -> bool:
        entered = self._entered.get(record.id)
        return entered is None or entered.dead()

    async def spawn(self, record: ContainerRecord, process: ProcessSpec) -> RunningProcess:
        if self._exec_by is not None:
            entered = self._find(record.id)
            if entered.dead():
                raise Terminal("The sandbox has died; create a new one.")
            env = {**record.env, **entered.proxy_env, **process.env}
            return await remote_exec.start(self._exec_by, record.container_id, process, env)
        with host_errors():
            return await execution.start(self._spawner, self._find(record.id), process)

    def files(self, record: ContainerRecord) -> FileSystem:
        entered = self._find(record.id)
        return RuncFileSystem(entered.open_root, id_shift=entered.id_shift)

    async def set_network(self, record: ContainerRecord, policy: NetworkPolicy) -> None:
        await self._network.apply(record.id, policy)
        self._find(record.id).proxy_env = self._network.proxy_env(record.id)

    async def dial(self, record: ContainerRecord, port: int) -> Connection:
        return await self._network.dial(record.id, port)

    async def usage(self, record: ContainerRecord) -> Usage:
        entered = self._find(record.id)
        if entered.dead():
            raise Terminal(f"The sandbox {record.id} has died; create a new one.")
        return measure(entered)

    def _find(self, sandbox_id: str) -> _Entered:
        try:
            return self._entered[sandbox_id]
        except KeyError:
            raise Conflict(
                f"The sandbox {sandbox_id} is still being created or is being destroyed; try again."
            ) from None

    def _enter(self, record: ContainerRecord, state: Mapping[str, Any]) -> _Entered:
        pid = int(state["Pid"])
        inside = SandboxRecord(
            id=record.id,
            image=record.image,
            template=record.template,
            layers=(),
            env=record.env,
            network=record.network,
            limits=record.limits,
            created_at=record.created_at,
            boot_id=boot_id(),
            phase=Phase.RUNNING,
            init_pid=pid,
            init_start=process_start(pid),
        )
        entered = _Entered(inside, self._paths, self._cgroup(record, pid))
        entered.hold_init()
        return entered

    def _cgroup(self, record: ContainerRecord, pid: int) -> SandboxCgroup:
        """Where Docker has put the container, in every hierarchy alike."""
        try:
            lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        except OSError:
            lines = []
        path = next((line[3:] for line in lines if line.startswith("0::")), "")
        if record.container_id not in path:
            raise Internal(
                f"Docker's container of {record.id} is not among this host's processes; give "
                "sandboxd the address of an engine that runs on the same machine."
            )
        parent, _, name = path.strip("/").rpartition("/")
        return SandboxCgroup(dataclasses.replace(self._cgroups, parent=parent), name)


def _id_shift(pid: int) -> int:
    """What is added to a container's uid on the host: its user namespace's first line."""
    try:
        inside, outside, _ = Path(f"/proc/{pid}/uid_map").read_text().split()[:3]
    except (OSError, ValueError):
        return 0
    return int(outside) - int(inside)
