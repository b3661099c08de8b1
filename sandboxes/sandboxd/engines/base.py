"""What sandboxd asks of an engine: containers, processes in them, their files and their network.

The engine owns what exists on the host (mounts, cgroups, namespaces, processes) and its own
records of it. sandboxd's service owns what the protocol promises (metadata, tokens, timeouts,
names) and decides when anything happens. An engine never decides to pause or kill by itself.

All methods raise only `sandboxes.errors`. Methods named idempotent may be repeated after a crash.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime

from sandboxes.capabilities import Capabilities
from sandboxes.client import ByteStream
from sandboxes.network import NetworkPolicy
from sandboxes.types import FileType

__all__ = [
    "AdoptedSandbox",
    "Connection",
    "Engine",
    "EngineSandboxState",
    "ExitStatus",
    "FileInfo",
    "FileSystem",
    "Limits",
    "ProcessSpec",
    "RunningProcess",
    "SandboxSpec",
    "SnapshotRecord",
    "TemplateRecord",
    "Usage",
    "WindowSize",
]


class EngineSandboxState(enum.StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"
    """Its init is gone: killed from outside, out of memory, or the host rebooted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Per sandbox; None leaves that one to the host."""

    memory_bytes: int | None = 2 * 1024**3
    pids: int | None = 512
    cpus: float | None = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """`image` is a template's or snapshot's id, already resolved from any name."""

    id: str
    image: str
    network: NetworkPolicy
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedSandbox:
    """A sandbox that outlived the previous sandboxd."""

    id: str
    image: str
    state: EngineSandboxState


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSize:
    cols: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """`user` is a name or uid known inside the sandbox; HOME, USER, LOGNAME and PATH come from it
    unless `env` sets them. `terminal` gives the process a pseudo-terminal instead of three pipes."""

    argv: Sequence[str]
    user: str
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: bool = False
    terminal: WindowSize | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitStatus:
    """Exactly one of the two is set."""

    code: int | None = None
    signal: int | None = None


class RunningProcess(abc.ABC):
    """A process in a sandbox. Its exit is known even while a daemonised child holds its pipes."""

    pid: int
    """As the sandbox's own processes see it."""

    @abc.abstractmethod
    def output(self) -> AsyncIterator[tuple[str, bytes]]:
        """("stdout" | "stderr" | "terminal", chunk) in the order in which they were read; ends when
        both pipes closed, or a moment after the process exited. Back-pressure reaches the process.
        One consumer."""

    @abc.abstractmethod
    async def write_stdin(self, data: bytes) -> None:
        """Conflict if its stdin is closed or was not asked for."""

    @abc.abstractmethod
    async def close_stdin(self) -> None:
        """Idempotent. Conflict for a terminal."""

    @abc.abstractmethod
    async def resize(self, size: WindowSize) -> None:
        """InvalidRequest without a terminal."""

    @abc.abstractmethod
    async def signal(self, signal: int) -> None:
        """To this process alone. NotFound after its exit."""

    @abc.abstractmethod
    async def kill_tree(self) -> None:
        """SIGKILL to it and every descendant, daemonised ones too. Idempotent; returns when none
        of them is left."""

    @abc.abstractmethod
    async def wait(self) -> ExitStatus: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """Of the entry itself: links are not followed. Owner and group are names where known inside
    the sandbox, else numbers as text."""

    name: str
    path: str
    type: FileType
    size_bytes: int
    mode: int
    owner: str
    group: str
    modified_at: datetime
    link_target: str | None = None
    target_type: FileType | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


class FileSystem(abc.ABC):
    """The files of one sandbox, seen from its own root. No operation follows a link out of it.

    Paths are absolute. Raises NotFound for a missing path, InvalidRequest for a wrong type of
    entry, Capacity for a full disk, Conflict where something is in the way.
    """

    @abc.abstractmethod
    async def home(self, user: str) -> str:
        """InvalidRequest for an account that the sandbox does not know."""

    @abc.abstractmethod
    async def stat(self, path: str) -> FileInfo: ...

    @abc.abstractmethod
    async def list(self, path: str, *, depth: int) -> list[FileInfo]:
        """Depth first, sorted by name; does not descend into links."""

    @abc.abstractmethod
    async def read(
        self, path: str, *, offset: int = 0, length: int | None = None
    ) -> AsyncIterator[bytes]:
        """Opens at once (errors are raised here), then streams."""

    @abc.abstractmethod
    async def write(
        self,
        path: str,
        data: AsyncIterable[bytes],
        *,
        owner: str,
        metadata: Mapping[str, str] | None = None,
    ) -> FileInfo:
        """Create or replace, mode 0644; missing parents are made, owned by `owner`, mode 0755.
        Written in place: other links to the file and open handles see it."""

    @abc.abstractmethod
    async def make_dir(self, path: str, *, owner: str) -> FileInfo:
        """With parents. Conflict if it exists as a directory, InvalidRequest as anything else."""

    @abc.abstractmethod
    async def move(self, source: str, destination: str, *, owner: str) -> FileInfo:
        """Parents of the destination are made."""

    @abc.abstractmethod
    async def remove(self, path: str) -> None:
        """Recursive, idempotent. InvalidRequest for the root itself."""

    @abc.abstractmethod
    def watch(
        self, path: str, *, recursive: bool
    ) -> AbstractAsyncContextManager[AsyncIterator[tuple[str, str]]]:
        """(event, path relative to the watched directory); event is one of create, write, remove,
        rename, chmod. Watching has begun when the block is entered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateRecord:
    id: str
    name: str
    created_at: datetime
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRecord:
    id: str
    source_sandbox_id: str
    base_template_id: str
    created_at: datetime
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    cpu_count: int
    cpu_used_pct: float
    memory_used_bytes: int
    memory_total_bytes: int
    memory_cache_bytes: int
    disk_used_bytes: int
    disk_total_bytes: int


class Connection(ByteStream):
    """A byte stream to a port inside a sandbox."""

    @abc.abstractmethod
    async def read(self, max_bytes: int = 65536) -> bytes:
        """b"" at the end."""

    @abc.abstractmethod
    async def write(self, data: bytes) -> None: ...

    @abc.abstractmethod
    async def aclose(self) -> None: ...


class Engine(abc.ABC):
    name: str
    capabilities: Capabilities

    @abc.abstractmethod
    async def start(self) -> list[AdoptedSandbox]:
        """Probe the host, finish or undo what a crash left half done, adopt what still lives.

        Unsupported, naming every missing package or permission, if this host cannot run it.
        """

    @abc.abstractmethod
    async def aclose(self) -> None:
        """Let go without touching a sandbox: they keep running for the next start."""

    @abc.abstractmethod
    async def create(self, spec: SandboxSpec) -> None:
        """InvalidRequest for an unknown image. Leaves nothing behind if it fails or is cancelled."""

    @abc.abstractmethod
    async def destroy(self, sandbox_id: str) -> None:
        """Idempotent. Nothing of it is mounted, running or routed when this returns; its disk space
        may be freed a moment later."""

    @abc.abstractmethod
    async def state(self, sandbox_id: str) -> EngineSandboxState:
        """NotFound for an unknown id."""

    @abc.abstractmethod
    async def pause(self, sandbox_id: str) -> None:
        """Idempotent."""

    @abc.abstractmethod
    async def resume(self, sandbox_id: str) -> None:
        """Idempotent."""

    @abc.abstractmethod
    async def spawn(self, sandbox_id: str, process: ProcessSpec) -> RunningProcess:
        """InvalidRequest for a missing cwd or user; a command that is not there exits 127, as a
        shell reports it. Conflict while paused."""

    @abc.abstractmethod
    def files(self, sandbox_id: str) -> FileSystem: ...

    @abc.abstractmethod
    async def set_network(self, sandbox_id: str, policy: NetworkPolicy) -> None:
        """Replace the policy of a running sandbox. Idempotent."""

    @abc.abstractmethod
    async def dial(self, sandbox_id: str, port: int) -> Connection:
        """To a server in the sandbox, bound to loopback or to any address. Unavailable if nothing
        listens there."""

    @abc.abstractmethod
    async def usage(self, sandbox_id: str) -> Usage: ...

    @abc.abstractmethod
    async def snapshot(self, sandbox_id: str, snapshot_id: str) -> SnapshotRecord:
        """Of a running or paused sandbox, which goes on as it was. All or nothing."""

    @abc.abstractmethod
    async def snapshots(self) -> list[SnapshotRecord]: ...

    @abc.abstractmethod
    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Idempotent. Sandboxes and snapshots that stand on it keep working: what they need of it
        is kept until the last of them is gone."""

    @abc.abstractmethod
    async def templates(self) -> list[TemplateRecord]: ...

    @abc.abstractmethod
    async def delete_template(self, template_id: str) -> None:
        """Idempotent. Conflict, naming them, while sandboxes or snapshots stand on it."""
