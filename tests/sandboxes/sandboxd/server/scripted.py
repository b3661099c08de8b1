"""An engine whose sandboxes do what the test says, for what a real one cannot be made to do on cue:
die, hang, flood. Everything that can be tested on the real engine is."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime

from sandboxes.capabilities import Capabilities
from sandboxes.errors import Conflict, NotFound, SandboxError, Unavailable
from sandboxes.network import NetworkPolicy
from sandboxes.sandboxd.engines.base import (
    AdoptedSandbox,
    Connection,
    Engine,
    EngineSandboxState,
    ExitStatus,
    FileSystem,
    ProcessSpec,
    RunningProcess,
    SandboxSpec,
    SnapshotRecord,
    TemplateRecord,
    Usage,
    WindowSize,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class ScriptedProcess(RunningProcess):
    """The test pushes output and ends it."""

    def __init__(self, pid: int, spec: ProcessSpec) -> None:
        self.pid = pid
        self.spec = spec
        self.taken_bytes = 0
        self.killed = False
        self._output: asyncio.Queue[tuple[str, bytes] | None] = asyncio.Queue()
        self._exit: asyncio.Future[ExitStatus] = asyncio.get_running_loop().create_future()

    def push(self, data: bytes, stream: str = "stdout") -> None:
        self._output.put_nowait((stream, data))

    def end(self, *, code: int | None = None, signal: int | None = None) -> None:
        if not self._exit.done():
            self._exit.set_result(ExitStatus(code=code, signal=signal))
            self._output.put_nowait(None)

    async def output(self) -> AsyncIterator[tuple[str, bytes]]:
        while (item := await self._output.get()) is not None:
            self.taken_bytes += len(item[1])
            yield item

    async def write_stdin(self, data: bytes) -> None:
        if not self.spec.stdin:
            raise Conflict("stdin is closed")
        self.push(data)

    async def close_stdin(self) -> None:
        self.end(code=0)

    async def resize(self, size: WindowSize) -> None: ...

    async def signal(self, number: int) -> None:
        self.end(signal=number)

    async def kill_tree(self) -> None:
        self.killed = True
        self.end(signal=signal.SIGKILL)

    async def wait(self) -> ExitStatus:
        return await asyncio.shield(self._exit)


class ScriptedEngine(Engine):
    name = "scripted"
    capabilities = Capabilities(
        files=False,
        snapshots=True,
        snapshot_keeps_processes=False,
        templates=True,
        pause=True,
        idle_timeout=True,
        outbound_switch=True,
        outbound_cidr_lists=True,
        outbound_domain_lists=True,
        inbound_switch=True,
        inbound_token=True,
        network_update=True,
        terminal=True,
        resource_limits=True,
        notes={"pause": "kept in memory"},
    )

    def __init__(self) -> None:
        self.states: dict[str, EngineSandboxState] = {}
        self.specs: dict[str, SandboxSpec] = {}
        self.networks: dict[str, NetworkPolicy] = {}
        self.processes: list[ScriptedProcess] = []
        self.snapshot_records: list[SnapshotRecord] = []
        self.template_records = [
            TemplateRecord(id="base-00000001", name="base", created_at=NOW, size_bytes=1)
        ]
        self.fail_next: SandboxError | None = None
        self.hold: asyncio.Event | None = None

    async def start(self) -> list[AdoptedSandbox]:
        return [
            AdoptedSandbox(id=sandbox_id, image="base-00000001", state=state)
            for sandbox_id, state in self.states.items()
        ]

    async def aclose(self) -> None: ...

    async def create(self, spec: SandboxSpec) -> None:
        await self._step()
        self.states[spec.id] = EngineSandboxState.RUNNING
        self.specs[spec.id] = spec
        self.networks[spec.id] = spec.network

    async def destroy(self, sandbox_id: str) -> None:
        self.states.pop(sandbox_id, None)

    async def state(self, sandbox_id: str) -> EngineSandboxState:
        if sandbox_id not in self.states:
            raise NotFound(f"{sandbox_id} not found")
        return self.states[sandbox_id]

    async def pause(self, sandbox_id: str) -> None:
        await self._step()
        self.states[sandbox_id] = EngineSandboxState.PAUSED

    async def resume(self, sandbox_id: str) -> None:
        await self._step()
        self.states[sandbox_id] = EngineSandboxState.RUNNING

    async def spawn(self, sandbox_id: str, process: ProcessSpec) -> RunningProcess:
        running = ScriptedProcess(100 + len(self.processes), process)
        self.processes.append(running)
        return running

    def files(self, sandbox_id: str) -> FileSystem:
        raise NotImplementedError

    async def set_network(self, sandbox_id: str, policy: NetworkPolicy) -> None:
        self.networks[sandbox_id] = policy

    async def dial(self, sandbox_id: str, port: int) -> Connection:
        raise Unavailable("nothing listens")

    async def usage(self, sandbox_id: str) -> Usage:
        return Usage(
            cpu_count=2,
            cpu_used_pct=1.5,
            memory_used_bytes=1,
            memory_total_bytes=2,
            memory_cache_bytes=3,
            disk_used_bytes=4,
            disk_total_bytes=5,
        )

    async def snapshot(self, sandbox_id: str, snapshot_id: str) -> SnapshotRecord:
        await self._step()
        record = SnapshotRecord(
            id=snapshot_id,
            source_sandbox_id=sandbox_id,
            base_template_id="base-00000001",
            created_at=datetime.now(UTC),
            size_bytes=10,
        )
        self.snapshot_records.append(record)
        return record

    async def snapshots(self) -> list[SnapshotRecord]:
        return list(self.snapshot_records)

    async def delete_snapshot(self, snapshot_id: str) -> None:
        self.snapshot_records = [s for s in self.snapshot_records if s.id != snapshot_id]

    async def templates(self) -> list[TemplateRecord]:
        return list(self.template_records)

    async def delete_template(self, template_id: str) -> None:
        self.template_records = [t for t in self.template_records if t.id != template_id]

    async def _step(self) -> None:
        if self.hold is not None:
            await self.hold.wait()
        if self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            raise error
