"""The runc engine: sandboxes as OCI containers on overlay mounts. See `base.Engine`.

What is held where: the host's objects of one sandbox in `sandbox.py`, snapshots in `snapshots.py`,
commands in `spawning.py` and `process.py`, networks in `network/`, files in `filesystem/`. This
module decides the order of things, and that nothing is left behind when one of them fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import time
from collections.abc import AsyncIterator, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from sandboxes.capabilities import Capabilities
from sandboxes.errors import Conflict, NotFound, SandboxError, Terminal
from sandboxes.network import NetworkPolicy
from sandboxes.sandboxd import identity
from sandboxes.sandboxd.engines.base import (
    AdoptedSandbox,
    Connection,
    Engine,
    EngineSandboxState,
    FileSystem,
    ProcessSpec,
    RunningProcess,
    SandboxSpec,
    SnapshotRecord,
    TemplateRecord,
    Usage,
)
from sandboxes.sandboxd.engines.runc import bundle, execution, host, overlay, recovery
from sandboxes.sandboxd.engines.runc.cgroups import Cgroups
from sandboxes.sandboxd.engines.runc.commands import host_errors
from sandboxes.sandboxd.engines.runc.filesystem import RuncFileSystem
from sandboxes.sandboxd.engines.runc.groups import Groups
from sandboxes.sandboxd.engines.runc.network import Network
from sandboxes.sandboxd.engines.runc.process import Descriptor
from sandboxes.sandboxd.engines.runc.records import (
    Phase,
    SandboxRecord,
    SnapshotFile,
    boot_id,
)
from sandboxes.sandboxd.engines.runc.rootless.holder import Holder
from sandboxes.sandboxd.engines.runc.rootless.processes import NamespaceGroups
from sandboxes.sandboxd.engines.runc.sandbox import Paths, RuncSandbox
from sandboxes.sandboxd.engines.runc.snapshots import SnapshotStore, copy_tree
from sandboxes.sandboxd.engines.runc.spawner.kernel import new_session_keyring
from sandboxes.sandboxd.engines.runc.spawning import SpawnerClient
from sandboxes.sandboxd.engines.runc.trash import Trash
from sandboxes.sandboxd.engines.runc.usage import measure
from sandboxes.sandboxd.engines.runc.waiting import outcome
from sandboxes.sandboxd.templates import Template, TemplateStore
from sandboxes.words import gettext_noop as _

__all__ = ["RuncEngine"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_RUN_DIR = Path("/run/skillyard")
_WITHOUT_ROOT = {
    "resource_limits": _(
        "Only root can limit memory, processes and CPU of a sandbox; run sandboxd as root for that."
    ),
    "pause": _(
        "A paused sandbox keeps its memory until this host restarts or the account's processes are "
        "ended. Its processes are stopped by a signal, which those that watch others can notice."
    ),
}
_CONCURRENT_CHANGES = 4
"""More creates or destroys at once only wait for each other in the kernel."""


class RuncEngine(Engine):
    name = "runc"

    def __init__(
        self, *, data_dir: Path, templates_dir: Path, holder: Holder | None = None
    ) -> None:
        """`holder`: this process runs without root, inside those namespaces."""
        key = identity.key(data_dir)
        # Mounts are found by their path as the kernel tells it, which has no links in it.
        data_dir = data_dir.resolve()
        self.data_dir = data_dir
        self._holder = holder
        self._paths = Paths(data_dir, Path(holder.mounts) if holder and holder.mounts else None)
        self._templates = TemplateStore(templates_dir)
        self._trash = Trash(self._paths.trash)
        self._snapshots = SnapshotStore(self._paths.snapshots, self._trash)
        self._spawner = SpawnerClient(self._paths.spawner)
        self._parent = f"skillyard-{key}"
        # On /run, because network namespaces and routes end with the boot that made them. In a
        # holder they end with it, wherever they were mounted, and routes there are none.
        self._network_dir = data_dir / "network" if holder else _RUN_DIR / f"network-{key}"
        self._network = Network(self._network_dir, links=holder is None)
        self._cgroups: Groups
        self._sandboxes: dict[str, RuncSandbox] = {}
        self._changes = asyncio.Semaphore(_CONCURRENT_CHANGES)
        self._lock: Descriptor | None = None

    # Life of the engine

    async def start(self) -> list[AdoptedSandbox]:
        host.check(self._paths.data, passable=self._paths.mounts is not None)
        if self._holder is None:
            self._cgroups = Cgroups.probe(self._parent)
            for problem in (host.make_room_for_watches(), host.others_with_our_ids()):
                if problem:
                    _log.warning(problem)
        else:
            self._cgroups = NamespaceGroups()
        self._take_folders()
        # What runs below us inherits it, so it must hold nothing of whoever started us.
        new_session_keyring()
        self._spawner.end_stale()
        self._trash.start()
        await self._snapshots.start()
        self._sandboxes = recovery.recover(self._paths, self._cgroups)
        for leftover in [s for s in self._sandboxes.values() if s.record.phase != Phase.RUNNING]:
            try:
                await self._destroy(leftover)
            except (SandboxError, OSError):
                # One that won't go must not keep the others from being served.
                _log.exception("sandbox %s could not be removed", leftover.id)
        await self._network.start(set(self._sandboxes))
        for sandbox in self._sandboxes.values():
            sandbox.proxy_env = self._network.proxy_env(sandbox.id)
        self._collect_snapshots()
        await self._spawner.start()
        self.capabilities = self._describe()
        return [
            AdoptedSandbox(id=s.id, image=s.record.image, state=self._state(s))
            for s in self._sandboxes.values()
        ]

    def _take_folders(self) -> None:
        host.prepare_folder(self._paths.data, 0o711)
        lock = Descriptor(os.open(self._paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        try:
            fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(
                f"Another sandboxd uses {self._paths.data}; stop it or choose another --data-dir."
            ) from None
        self._lock = lock
        host.prepare_folder(self._paths.sandboxes, 0o711)
        for private in (self._paths.snapshots, self._paths.trash, self._paths.runc):
            host.prepare_folder(private, 0o700)

    async def aclose(self) -> None:
        await self._spawner.aclose()
        await self._network.aclose()
        await self._snapshots.aclose()
        await self._trash.aclose()
        if not self._sandboxes:
            self._cgroups.remove_parent()
            with contextlib.suppress(OSError):
                self._network_dir.rmdir()
        for sandbox in self._sandboxes.values():
            sandbox.let_go()
        if self._holder is not None and not self._sandboxes:
            self._holder.end()
        self._sandboxes.clear()
        if self._lock is not None:
            self._lock.close()

    def sandbox_ids(self) -> list[str]:
        return list(self._sandboxes)

    async def settled(self) -> None:
        """Returns when what goes on in the background (freeing, flushing) is done."""
        await self._snapshots.flushed()
        await self._trash.emptied()

    def _describe(self) -> Capabilities:
        network = self._network.capabilities()
        return Capabilities(
            files=True,
            snapshots=True,
            snapshot_keeps_processes=False,
            templates=True,
            pause=True,
            idle_timeout=True,
            outbound_switch=network["outbound_switch"],
            outbound_cidr_lists=network["outbound_cidr_lists"],
            outbound_domain_lists=network["outbound_domain_lists"],
            private_ranges_closed=True,
            inbound_switch=True,
            inbound_token=True,
            network_update=network["network_update"],
            terminal=True,
            resource_limits=self._holder is None,
            notes=self._network.notes()
            | {
                "snapshot_keeps_processes": _("A snapshot holds files; processes start anew."),
                "pause": _("A paused sandbox keeps its memory until this host restarts."),
            }
            | ({} if self._holder is None else _WITHOUT_ROOT),
        )

    # Life of a sandbox

    async def create(self, spec: SandboxSpec) -> None:
        work = asyncio.ensure_future(self._create(spec))
        try:
            with host_errors():
                await outcome(work)
        except asyncio.CancelledError:
            if not work.cancelled() and work.exception() is None:
                await self.destroy(spec.id)
            raise

    async def _create(self, spec: SandboxSpec) -> None:
        record, layers = await self._plan(spec)
        if spec.id in self._sandboxes:
            raise Conflict(f"There is a sandbox {spec.id} already; choose another id.")
        sandbox = RuncSandbox(record, self._paths, self._cgroups.of(spec.id))
        self._sandboxes[spec.id] = sandbox
        async with sandbox.changing, self._changes:
            try:
                sandbox.make_folder()
                netns = await self._network.create(spec.id, spec.network)
                sandbox.make_upper(
                    {
                        "resolv.conf": self._network.resolv_conf(spec.id),
                        "hosts": f"127.0.0.1 localhost {spec.id}\n::1 localhost ip6-localhost\n",
                        "hostname": f"{spec.id}\n",
                    }
                )
                await sandbox.mount(layers, rootless=self._holder is not None)
                config = bundle.config(
                    hostname=spec.id,
                    rootfs=sandbox.merged,
                    netns=netns,
                    cgroup=sandbox.cgroup.path,
                    limits=spec.limits,
                    init=Path(shutil.which(host.INIT) or host.INIT),
                )
                await sandbox.run(config)
                sandbox.proxy_env = self._network.proxy_env(spec.id)
            except BaseException:
                await self._destroy_locked(sandbox)
                raise

    async def _plan(self, spec: SandboxSpec) -> tuple[SandboxRecord, list[Path]]:
        snapshot = self._snapshots.find(spec.image)
        template: Template | None = None
        if snapshot is not None:
            layers, base, env = snapshot.layers, snapshot.base_template_id, snapshot.env
        else:
            template = await asyncio.to_thread(self._templates.get, spec.image)
            layers, base, env = (template.id,), template.id, dict(template.env)
        record = SandboxRecord(
            id=spec.id,
            image=spec.image,
            template=base,
            layers=layers,
            env=env,
            network=spec.network,
            limits=spec.limits,
            created_at=time.time(),
            boot_id=boot_id(),
            phase=Phase.CREATING,
        )
        return record, [self._layer_path(layer) for layer in layers]

    def _layer_path(self, layer: str) -> Path:
        snapshot = self._snapshots.diff(layer)
        return snapshot if snapshot.exists() else self._templates.root / layer / "rootfs"

    async def destroy(self, sandbox_id: str) -> None:
        sandbox = self._sandboxes.get(sandbox_id)
        if sandbox is not None:
            await _to_the_end(self._destroy(sandbox))

    async def _destroy(self, sandbox: RuncSandbox) -> None:
        async with sandbox.changing, self._changes:
            await self._destroy_locked(sandbox)

    async def _destroy_locked(self, sandbox: RuncSandbox) -> None:
        """Each step may be repeated, so what fails here is finished by the next try or start."""
        if self._sandboxes.get(sandbox.id) is not sandbox:
            return
        with contextlib.suppress(FileNotFoundError):
            sandbox.save(phase=Phase.DESTROYING)
        await sandbox.end_processes()
        await self._network.destroy(sandbox.id)
        await sandbox.unmount()
        await sandbox.discard(self._trash)
        del self._sandboxes[sandbox.id]
        self._collect_snapshots()

    async def state(self, sandbox_id: str) -> EngineSandboxState:
        return self._state(self._find(sandbox_id))

    def _state(self, sandbox: RuncSandbox) -> EngineSandboxState:
        if sandbox.record.phase is Phase.CREATING:
            return EngineSandboxState.RUNNING
        if sandbox.dead():
            return EngineSandboxState.DEAD
        if sandbox.record.paused:
            return EngineSandboxState.PAUSED
        return EngineSandboxState.RUNNING

    def _find(self, sandbox_id: str) -> RuncSandbox:
        try:
            return self._sandboxes[sandbox_id]
        except KeyError:
            raise NotFound(f"There is no sandbox {sandbox_id}.") from None

    @contextlib.asynccontextmanager
    async def _change(self, sandbox_id: str) -> AsyncIterator[RuncSandbox]:
        """A live sandbox that nobody else changes meanwhile."""
        sandbox = self._find(sandbox_id)
        async with sandbox.changing:
            if self._sandboxes.get(sandbox_id) is not sandbox:
                raise NotFound(f"There is no sandbox {sandbox_id}.")
            if sandbox.dead():
                raise Terminal(f"The sandbox {sandbox_id} has died; create a new one.")
            yield sandbox

    async def pause(self, sandbox_id: str) -> None:
        with host_errors():
            await self._pause(sandbox_id)

    async def _pause(self, sandbox_id: str) -> None:
        async with self._change(sandbox_id) as sandbox:
            sandbox.save(paused=True)
            try:
                await sandbox.cgroup.freeze()
            except BaseException:
                sandbox.save(paused=False)
                raise

    async def resume(self, sandbox_id: str) -> None:
        async with self._change(sandbox_id) as sandbox:
            sandbox.cgroup.thaw()
            sandbox.save(paused=False)

    # What runs in it

    async def spawn(self, sandbox_id: str, process: ProcessSpec) -> RunningProcess:
        sandbox = self._find(sandbox_id)
        if sandbox.record.paused:
            raise Conflict(f"The sandbox {sandbox_id} is paused; resume it first.")
        with host_errors():
            return await execution.start(self._spawner, sandbox, process)

    def files(self, sandbox_id: str) -> FileSystem:
        sandbox = self._find(sandbox_id)
        return RuncFileSystem(sandbox.open_root, id_shift=bundle.ID_OFFSET)

    async def set_network(self, sandbox_id: str, policy: NetworkPolicy) -> None:
        async with self._change(sandbox_id) as sandbox:
            sandbox.save(network=policy)
            await self._network.apply(sandbox_id, policy)
            sandbox.proxy_env = self._network.proxy_env(sandbox_id)

    async def dial(self, sandbox_id: str, port: int) -> Connection:
        sandbox = self._find(sandbox_id)
        if sandbox.record.paused:
            raise Conflict(f"The sandbox {sandbox_id} is paused; resume it first.")
        return await self._network.dial(sandbox_id, port)

    async def usage(self, sandbox_id: str) -> Usage:
        sandbox = self._find(sandbox_id)
        if sandbox.dead():
            raise Terminal(f"The sandbox {sandbox_id} has died; create a new one.")
        return measure(sandbox)

    # Images

    async def snapshot(self, sandbox_id: str, snapshot_id: str) -> SnapshotRecord:
        record = await _to_the_end(self._snapshot(sandbox_id, snapshot_id))
        return _snapshot_record(record)

    async def _snapshot(self, sandbox_id: str, snapshot_id: str) -> SnapshotFile:
        async with self._change(sandbox_id) as sandbox:
            folder = self._snapshots.begin(snapshot_id)
            try:
                flat = len(sandbox.record.layers) >= overlay.MAX_LAYERS
                await self._copy_frozen(sandbox, folder / "diff", flat=flat)
                layers = () if flat else sandbox.record.layers
                record = SnapshotFile(
                    id=snapshot_id,
                    source_sandbox_id=sandbox_id,
                    base_template_id=sandbox.record.template,
                    layers=(snapshot_id, *layers),
                    env=sandbox.record.env,
                    created_at=time.time(),
                    size_bytes=0,
                    boot_id=boot_id(),
                )
                return await self._snapshots.publish(folder, record)
            except BaseException:
                self._snapshots.abandon(folder)
                raise

    async def _copy_frozen(self, sandbox: RuncSandbox, target: Path, *, flat: bool) -> None:
        """A flat copy is of all layers, seen through the mount; it stands on nothing."""
        if not sandbox.record.paused:
            await sandbox.cgroup.freeze()
        try:
            await copy_tree(sandbox.merged if flat else sandbox.upper, target)
        finally:
            if not sandbox.record.paused:
                sandbox.cgroup.thaw()

    async def snapshots(self) -> list[SnapshotRecord]:
        return [_snapshot_record(snapshot) for snapshot in self._snapshots.usable()]

    async def delete_snapshot(self, snapshot_id: str) -> None:
        await self._snapshots.delete(snapshot_id)
        self._collect_snapshots()

    def _collect_snapshots(self) -> None:
        self._snapshots.collect(
            layer for sandbox in self._sandboxes.values() for layer in sandbox.record.layers
        )

    async def templates(self) -> list[TemplateRecord]:
        return [
            TemplateRecord(id=t.id, name=t.name, created_at=t.created_at, size_bytes=t.size_bytes)
            for t in await asyncio.to_thread(self._templates.list)
        ]

    async def delete_template(self, template_id: str) -> None:
        users = sorted(s.id for s in self._sandboxes.values() if template_id in s.record.layers)
        users += self._snapshots.standing_on(template_id)
        if users:
            raise Conflict(
                f"The template {template_id} is in use by {', '.join(users)}; delete them first."
            )
        await asyncio.to_thread(self._templates.remove, template_id)


def _snapshot_record(snapshot: SnapshotFile) -> SnapshotRecord:
    return SnapshotRecord(
        id=snapshot.id,
        source_sandbox_id=snapshot.source_sandbox_id,
        base_template_id=snapshot.base_template_id,
        created_at=datetime.fromtimestamp(snapshot.created_at, UTC),
        size_bytes=snapshot.size_bytes,
    )


async def _to_the_end(work: Coroutine[Any, Any, _T]) -> _T:
    """Half-done host changes are worse than a late answer: a cancelled caller waits until the work
    has ended."""
    with host_errors():
        return await outcome(asyncio.ensure_future(work))
