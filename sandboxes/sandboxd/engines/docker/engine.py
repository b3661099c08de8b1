"""The Docker engine: sandboxes as hardened containers. See `base.Engine`.

What is held where: containers in `containers.py`, what Docker is told of one in `container.py`, snapshots in
`snapshots.py` and `archive.py`, templates in `templates.py`; how the inside of a container is reached in `reach.py`.
This module decides the order of things, and that nothing is left behind when one of them fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import shutil
import time
from collections.abc import AsyncIterator, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from sandboxes.capabilities import Capabilities
from sandboxes.errors import Conflict, NotFound, SandboxError, Terminal, Unsupported
from sandboxes.network import CLOSED, NetworkPolicy
from sandboxes.sandboxd import identity
from sandboxes.sandboxd.engines.base import (
    AdoptedSandbox,
    Connection,
    Engine,
    EngineSandboxState,
    FileSystem,
    Limits,
    ProcessSpec,
    RunningProcess,
    SandboxSpec,
    SnapshotRecord,
    TemplateRecord,
    Usage,
)
from sandboxes.sandboxd.engines.docker.api import Api, DockerHost
from sandboxes.sandboxd.engines.docker.archive import Archive
from sandboxes.sandboxd.engines.docker.choosing import choose_reach
from sandboxes.sandboxd.engines.docker.containers import Containers
from sandboxes.sandboxd.engines.docker.folders import take_folders
from sandboxes.sandboxd.engines.docker.local import cgroup_parent
from sandboxes.sandboxd.engines.docker.reach import Reach
from sandboxes.sandboxd.engines.docker.records import ContainerRecord, ImageRecord, Paths
from sandboxes.sandboxd.engines.docker.snapshots import SnapshotStore
from sandboxes.sandboxd.engines.docker.templates import TemplateImages
from sandboxes.sandboxd.engines.runc.commands import host_errors
from sandboxes.sandboxd.engines.runc.records import Phase
from sandboxes.sandboxd.engines.runc.waiting import outcome
from sandboxes.sandboxd.templates import TemplateStore
from sandboxes.words import gettext_noop as _

__all__ = ["DockerEngine"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_CONCURRENT_CHANGES = 4
"""More creates or destroys at once only wait for each other in Docker."""


@dataclasses.dataclass(slots=True)
class _Sandbox:
    record: ContainerRecord
    changing: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)
    """Held by whatever changes the sandbox as a whole."""


class DockerEngine(Engine):
    name = "docker"

    def __init__(self, *, data_dir: Path, templates_dir: Path, host: DockerHost) -> None:
        self._key = identity.key(data_dir)
        self.data_dir = data_dir.resolve()
        self._paths = Paths(self.data_dir)
        self._host = host
        self._template_store = TemplateStore(templates_dir)
        self._archive = Archive(self._paths.archive)
        self._api: Api
        self._reach: Reach
        self._snapshots: SnapshotStore
        self._templates: TemplateImages
        self._containers: Containers
        self._sandboxes: dict[str, _Sandbox] = {}
        self._half_made: list[_Sandbox] = []
        self._changes = asyncio.Semaphore(_CONCURRENT_CHANGES)
        self._opened = contextlib.AsyncExitStack()

    # Life of the engine

    async def start(self) -> list[AdoptedSandbox]:
        async with contextlib.AsyncExitStack() as undo:
            adopted = await self._start(undo)
            self._opened = undo.pop_all()
        return adopted

    async def _start(self, undo: contextlib.AsyncExitStack) -> list[AdoptedSandbox]:
        self._api = Api(self._host)
        undo.push_async_callback(self._api.aclose)
        info = await self._api.info()
        undo.callback(take_folders(self._paths).close)
        undo.callback(self._sandboxes.clear)
        self._reach = choose_reach(self._api, self._host, info, paths=self._paths, key=self._key)
        self._snapshots = SnapshotStore(
            self._paths.snapshots, self._api, self._archive, key=self._key
        )
        self._templates = TemplateImages(self._template_store, self._api, self._paths.templates)
        # systemd's driver takes slices only, and its default is as good.
        own_parent = info.get("CgroupDriver") == "cgroupfs"
        self._containers = Containers(
            self._api,
            self._snapshots,
            self._templates,
            key=self._key,
            architecture=str(info["Architecture"]),
            cgroup_parent=f"/{cgroup_parent(self._key)}" if own_parent else "",
        )
        self._reach.prepare()
        undo.push_async_callback(self._reach.aclose)
        undo.push_async_callback(self._snapshots.aclose)
        await asyncio.to_thread(self._archive.start)
        leftovers = await self._recover()
        await self._reach.start(set(self._sandboxes) - {left.record.id for left in leftovers})
        for leftover in leftovers:
            try:
                await self._destroy(leftover)
            except (SandboxError, OSError):
                # One that won't go must not keep the others from being served.
                _log.exception("sandbox %s could not be removed", leftover.record.id)
        await self._snapshots.start(self._used_images())
        self.capabilities = self._describe()
        return [
            AdoptedSandbox(id=s.record.id, image=s.record.image, state=EngineSandboxState.RUNNING)
            for s in self._sandboxes.values()
        ]

    async def _recover(self) -> list[_Sandbox]:
        """Fills `_sandboxes` with all that is there; returns those to be destroyed."""
        ours = await self._containers.ours()
        names = {path.name for path in self._paths.sandboxes.iterdir()} | set(ours)
        leftovers = []
        for name in sorted(names):
            sandbox = _Sandbox(self._load(name))
            self._sandboxes[name] = sandbox
            if not await self._adopt(sandbox, ours.get(name)):
                leftovers.append(sandbox)
        return leftovers

    async def _adopt(self, sandbox: _Sandbox, container_id: str | None) -> bool:
        record = sandbox.record
        if record.phase is not Phase.RUNNING or record.container_id != container_id:
            return False
        state = (await self._api.inspect(record.container_id))["State"]
        if not state["Running"] or state["StartedAt"] != record.started_at:
            return False
        if state["Paused"]:
            # A snapshot was being taken.
            await self._api.unpause(record.container_id)
        return await self._reach.adopt(record, state)

    def _load(self, sandbox_id: str) -> ContainerRecord:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return ContainerRecord.load(self._record_path(sandbox_id))
        spec = SandboxSpec(id=sandbox_id, image="", network=CLOSED, limits=Limits())
        return _new_record(spec, phase=Phase.DESTROYING)

    async def aclose(self) -> None:
        await self._opened.aclose()

    def sandbox_ids(self) -> list[str]:
        return list(self._sandboxes)

    async def settled(self) -> None:
        """Returns when what goes on in the background (copying snapshots) is done."""
        await self._snapshots.settled()

    def _describe(self) -> Capabilities:
        capabilities = self._reach.capabilities()
        notes = {
            "snapshot_keeps_processes": _("A snapshot holds files; processes start anew."),
            "pause": _(
                "Docker keeps a paused container in memory for good; an unused sandbox is ended, and "
                "rebuilt at its next use."
            ),
        }
        return dataclasses.replace(capabilities, notes={**notes, **capabilities.notes})

    # Life of a sandbox

    async def create(self, spec: SandboxSpec) -> None:
        try:
            await _to_the_end(self._create(spec))
        except asyncio.CancelledError:
            await self.destroy(spec.id)
            raise

    async def _create(self, spec: SandboxSpec) -> None:
        if spec.id in self._sandboxes:
            raise Conflict(f"There is a sandbox {spec.id} already; choose another id.")
        await self._clear_half_made()
        sandbox = _Sandbox(_new_record(spec, phase=Phase.CREATING))
        self._sandboxes[spec.id] = sandbox
        async with sandbox.changing, self._changes:
            try:
                sandbox.record = await self._containers.with_image(sandbox.record)
                self._record_path(spec.id).parent.mkdir(mode=0o700)
                self._save(sandbox)
                await self._run(sandbox)
            except BaseException:
                await self._undo(sandbox)
                raise

    async def _undo(self, sandbox: _Sandbox) -> None:
        try:
            await self._destroy_locked(sandbox)
        except SandboxError as error:
            # Docker went away meanwhile. What failed first is what the caller is to hear.
            _log.warning("sandbox %s is half made: %s", sandbox.record.id, error)
            self._half_made.append(sandbox)

    async def _clear_half_made(self) -> None:
        for sandbox in list(self._half_made):
            await self._destroy(sandbox)
            self._half_made.remove(sandbox)

    async def _run(self, sandbox: _Sandbox) -> None:
        record = sandbox.record
        sandbox.record = await self._containers.create(
            record, self._reach.host_config(record.network)
        )
        self._save(sandbox)
        container_id = sandbox.record.container_id
        await self._api.start(container_id)
        state = (await self._api.inspect(container_id))["State"]
        await self._reach.attach(sandbox.record, state)
        self._save(sandbox, phase=Phase.RUNNING, started_at=state["StartedAt"])

    async def destroy(self, sandbox_id: str) -> None:
        sandbox = self._sandboxes.get(sandbox_id)
        if sandbox is not None:
            await _to_the_end(self._destroy(sandbox))

    async def _destroy(self, sandbox: _Sandbox) -> None:
        async with sandbox.changing, self._changes:
            await self._destroy_locked(sandbox)

    async def _destroy_locked(self, sandbox: _Sandbox) -> None:
        """Each step may be repeated, so what fails here is finished by the next try or start."""
        sandbox_id = sandbox.record.id
        if self._sandboxes.get(sandbox_id) is not sandbox:
            return
        with contextlib.suppress(FileNotFoundError):
            self._save(sandbox, phase=Phase.DESTROYING)
        await self._snapshots.held(sandbox_id=sandbox_id)
        await self._containers.remove(sandbox.record)
        await self._reach.detach(sandbox_id)
        shutil.rmtree(self._record_path(sandbox_id).parent, ignore_errors=True)
        del self._sandboxes[sandbox_id]
        await self._snapshots.collect(self._used_images())

    async def state(self, sandbox_id: str) -> EngineSandboxState:
        sandbox = self._find(sandbox_id)
        if sandbox.record.phase is Phase.CREATING or not await self._reach.dead(sandbox.record):
            return EngineSandboxState.RUNNING
        return EngineSandboxState.DEAD

    async def pause(self, sandbox_id: str) -> None:
        self._find(sandbox_id)
        raise Unsupported(self.capabilities.notes["pause"])

    async def resume(self, sandbox_id: str) -> None:
        """It always runs."""
        self._find(sandbox_id)

    def _find(self, sandbox_id: str) -> _Sandbox:
        try:
            return self._sandboxes[sandbox_id]
        except KeyError:
            raise NotFound(f"There is no sandbox {sandbox_id}.") from None

    @contextlib.asynccontextmanager
    async def _change(self, sandbox_id: str) -> AsyncIterator[_Sandbox]:
        """A live sandbox that nobody else changes meanwhile."""
        sandbox = self._find(sandbox_id)
        async with sandbox.changing:
            if self._sandboxes.get(sandbox_id) is not sandbox:
                raise NotFound(f"There is no sandbox {sandbox_id}.")
            if await self._reach.dead(sandbox.record):
                raise Terminal(f"The sandbox {sandbox_id} has died; create a new one.")
            yield sandbox

    # What runs in it

    async def spawn(self, sandbox_id: str, process: ProcessSpec) -> RunningProcess:
        return await self._reach.spawn(self._find(sandbox_id).record, process)

    def files(self, sandbox_id: str) -> FileSystem:
        return self._reach.files(self._find(sandbox_id).record)

    async def set_network(self, sandbox_id: str, policy: NetworkPolicy) -> None:
        async with self._change(sandbox_id) as sandbox:
            self._save(sandbox, network=policy)
            await self._reach.set_network(sandbox.record, policy)

    async def dial(self, sandbox_id: str, port: int) -> Connection:
        return await self._reach.dial(self._find(sandbox_id).record, port)

    async def usage(self, sandbox_id: str) -> Usage:
        return await self._reach.usage(self._find(sandbox_id).record)

    # Images

    async def snapshot(self, sandbox_id: str, snapshot_id: str) -> SnapshotRecord:
        return _snapshot_record(await _to_the_end(self._snapshot(sandbox_id, snapshot_id)))

    async def _snapshot(self, sandbox_id: str, snapshot_id: str) -> ImageRecord:
        async with self._change(sandbox_id) as sandbox:
            record = ImageRecord(
                id=snapshot_id,
                image_id="",
                source_sandbox_id=sandbox_id,
                base_template_id=sandbox.record.template,
                env=sandbox.record.env,
                created_at=time.time(),
                size_bytes=0,
            )
            return await self._snapshots.take(sandbox.record.container_id, record)

    async def snapshots(self) -> list[SnapshotRecord]:
        return [_snapshot_record(record) for record in self._snapshots.all()]

    async def delete_snapshot(self, snapshot_id: str) -> None:
        await self._snapshots.delete(snapshot_id, self._used_images())

    async def templates(self) -> list[TemplateRecord]:
        return [
            TemplateRecord(id=t.id, name=t.name, created_at=t.created_at, size_bytes=t.size_bytes)
            for t in await self._templates.all()
        ]

    async def delete_template(self, template_id: str) -> None:
        users = sorted(
            s.record.id for s in self._sandboxes.values() if s.record.template == template_id
        )
        users += self._snapshots.standing_on(template_id)
        if users:
            raise Conflict(
                f"The template {template_id} is in use by {', '.join(users)}; delete them first."
            )
        await self._templates.remove(template_id)

    # Inside

    def _used_images(self) -> set[str]:
        return {sandbox.record.image_id for sandbox in self._sandboxes.values()}

    def _record_path(self, sandbox_id: str) -> Path:
        return self._paths.sandboxes / sandbox_id / "engine.json"

    def _save(self, sandbox: _Sandbox, **changes: Any) -> None:
        sandbox.record = dataclasses.replace(sandbox.record, **changes)
        sandbox.record.save(self._record_path(sandbox.record.id))


def _new_record(spec: SandboxSpec, *, phase: Phase) -> ContainerRecord:
    return ContainerRecord(
        id=spec.id,
        image=spec.image,
        image_id="",
        template="",
        env={},
        network=spec.network,
        limits=spec.limits,
        created_at=time.time(),
        phase=phase,
    )


def _snapshot_record(record: ImageRecord) -> SnapshotRecord:
    return SnapshotRecord(
        id=record.id,
        source_sandbox_id=record.source_sandbox_id,
        base_template_id=record.base_template_id,
        created_at=datetime.fromtimestamp(record.created_at, UTC),
        size_bytes=record.size_bytes,
    )


async def _to_the_end(work: Coroutine[Any, Any, _T]) -> _T:
    """Half-done host changes are worse than a late answer: a cancelled caller waits until the work
    has ended."""
    with host_errors():
        return await outcome(asyncio.ensure_future(work))
