"""The contract between the product and every sandbox backend.

`SandboxClient` is the whole of it: lifecycle and exec as methods, and the rest behind accessors
that return None where the backend cannot. Callers ask an accessor or `capabilities`, never which
provider it is.

Every method raises only `sandboxes.errors.SandboxError`, honours cancellation, and may be called
concurrently. A client belongs to one event loop of one process and is closed with `aclose`.
"""

from __future__ import annotations

import abc
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self

from sandboxes.capabilities import Capabilities
from sandboxes.network import NetworkPolicy
from sandboxes.types import (
    DEFAULT_USER,
    CreateRequest,
    Endpoint,
    ExecEvent,
    ExecExit,
    ExecOutput,
    ExecRequest,
    ExecResult,
    FileEntry,
    ListFilter,
    Sandbox,
    SandboxInfo,
    SnapshotInfo,
    Stream,
    TemplateBuild,
    TemplateInfo,
)

__all__ = [
    "ByteStream",
    "FileStore",
    "InboundAccess",
    "NetworkControl",
    "Pausing",
    "ProtocolAccess",
    "SandboxClient",
    "SnapshotStore",
    "TemplateCatalog",
    "Terminal",
    "TerminalAccess",
]


class SandboxClient(abc.ABC):
    """One connection to one provider account."""

    provider: str
    capabilities: Capabilities
    account_id: str | None = None
    """The provider's own word for the account, if it has one: equal ids are the same account."""

    @abc.abstractmethod
    async def health(self) -> None:
        """Return if the provider answers and accepts our credentials; raise otherwise."""

    @abc.abstractmethod
    async def create(self, request: CreateRequest) -> Sandbox:
        """Start a sandbox. Not idempotent. An unknown template is InvalidRequest."""

    @abc.abstractmethod
    async def connect(
        self, sandbox_id: str, *, traffic_token: str | None = None, timeout_s: float | None = None
    ) -> Sandbox:
        """A handle on a sandbox that exists; wakes a paused one. Idempotent.

        `timeout_s` extends its life and never shortens it. `traffic_token` is the stored one, kept
        in the handle where the provider does not return it again.
        """

    @abc.abstractmethod
    async def get(self, sandbox_id: str) -> SandboxInfo:
        """What the provider knows, without waking it. NotFound if there is none."""

    @abc.abstractmethod
    def list(self, filter: ListFilter) -> AsyncIterator[SandboxInfo]:
        """Running and paused sandboxes that match, all pages, newest first where known."""

    @abc.abstractmethod
    async def delete(self, sandbox_id: str) -> None:
        """Destroy it, paused or running. NotFound if it is already gone, which callers take as done."""

    @abc.abstractmethod
    def exec(
        self, sandbox: Sandbox, request: ExecRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ExecEvent]]:
        """Run one command and stream it: ExecStarted, any ExecOutput, exactly one ExecExit.

        The command belongs to the block: leaving it early kills the process tree. NotFound if the
        sandbox is gone, before or while it runs; InvalidRequest for a missing cwd or user.
        A command that is not on PATH exits 127.
        """

    async def run(
        self, sandbox: Sandbox, request: ExecRequest, *, max_output_bytes: int = 16 * 1024 * 1024
    ) -> ExecResult:
        """`exec`, collected. Output past `max_output_bytes` a stream is dropped, never the exit."""
        kept = {Stream.STDOUT: bytearray(), Stream.STDERR: bytearray()}
        truncated = False
        end: ExecExit | None = None
        async with self.exec(sandbox, request) as events:
            async for event in events:
                if isinstance(event, ExecOutput):
                    buffer = kept[event.stream]
                    room = max_output_bytes - len(buffer)
                    truncated = truncated or len(event.data) > room
                    buffer += event.data[: max(room, 0)]
                elif isinstance(event, ExecExit):
                    end = event
        assert end is not None, "exec must end with ExecExit or raise"
        return ExecResult(
            stdout=bytes(kept[Stream.STDOUT]),
            stderr=bytes(kept[Stream.STDERR]),
            exit_code=end.exit_code,
            killed=end.killed,
            duration_s=end.duration_s,
            truncated=truncated,
        )

    @abc.abstractmethod
    async def aclose(self) -> None:
        """Release connections. Idempotent; the sandboxes live on."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    # Accessors: None where the backend cannot.

    @property
    def files(self) -> FileStore | None:
        return None

    @property
    def snapshots(self) -> SnapshotStore | None:
        return None

    @property
    def templates(self) -> TemplateCatalog | None:
        return None

    @property
    def inbound(self) -> InboundAccess | None:
        return None

    @property
    def pausing(self) -> Pausing | None:
        return None

    @property
    def network(self) -> NetworkControl | None:
        return None

    @property
    def terminal(self) -> TerminalAccess | None:
        return None

    @property
    def protocol(self) -> ProtocolAccess | None:
        return None


class FileStore(abc.ABC):
    """Files of one sandbox. No operation follows a link out of the sandbox's own root."""

    @abc.abstractmethod
    def read(
        self, sandbox: Sandbox, path: str, *, user: str = DEFAULT_USER
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Stream a file in chunks, with flat memory. NotFound; InvalidRequest for a directory."""

    @abc.abstractmethod
    async def write(
        self,
        sandbox: Sandbox,
        path: str,
        data: bytes | AsyncIterable[bytes],
        *,
        user: str = DEFAULT_USER,
    ) -> None:
        """Create or replace a file owned by `user`, mode 0644, its missing parents with it.

        An iterable is streamed with flat memory. InvalidRequest where `path` is a directory,
        Capacity on a full disk. What the iterable raises is raised; a part of the file may be there
        then, and nothing more is written to it.
        """

    @abc.abstractmethod
    async def list(
        self, sandbox: Sandbox, path: str, *, depth: int = 1, user: str = DEFAULT_USER
    ) -> list[FileEntry]:
        """Entries below a directory, sorted by path. NotFound; InvalidRequest for a file."""

    @abc.abstractmethod
    async def stat(self, sandbox: Sandbox, path: str, *, user: str = DEFAULT_USER) -> FileEntry:
        """One entry. NotFound if it is missing."""

    @abc.abstractmethod
    async def make_dir(self, sandbox: Sandbox, path: str, *, user: str = DEFAULT_USER) -> None:
        """Like mkdir -p: an existing directory is success, an existing file InvalidRequest."""

    @abc.abstractmethod
    async def move(
        self, sandbox: Sandbox, source: str, target: str, *, user: str = DEFAULT_USER
    ) -> None:
        """Give a file or a whole directory another path, whose missing parents are made. A link is moved
        itself. NotFound without a source; a file at `target` is replaced, a directory is refused."""

    @abc.abstractmethod
    async def remove(self, sandbox: Sandbox, path: str, *, user: str = DEFAULT_USER) -> None:
        """Remove a file or a whole directory. Idempotent: a missing path is success."""


class SnapshotStore(abc.ABC):
    """Snapshots of this provider account. A snapshot outlives its source."""

    @abc.abstractmethod
    async def create(self, sandbox_id: str, *, name: str) -> SnapshotInfo:
        """Freeze the sandbox for a moment and keep its state; it runs on afterwards.

        Ready when this returns. `name` is the caller's, to find the snapshot again after a crash.
        """

    @abc.abstractmethod
    def list(self, *, sandbox_id: str | None = None) -> AsyncIterator[SnapshotInfo]:
        """All snapshots of the account, or those made of one sandbox. Terminates on any paging bug."""

    @abc.abstractmethod
    async def delete(self, snapshot_id: str) -> None:
        """Idempotent: a missing one is success. Conflict while something still needs it."""


class TemplateCatalog(abc.ABC):
    """Base images, never snapshots."""

    @abc.abstractmethod
    def list(self) -> AsyncIterator[TemplateInfo]: ...

    @abc.abstractmethod
    async def get(self, template_id: str) -> TemplateInfo:
        """By id or name, with the status of its build. NotFound."""

    @abc.abstractmethod
    async def ensure(self, name: str, *, rebuild: bool = False) -> TemplateBuild:
        """Have a template of that name there. READY if it is; else its build is begun, or the one that runs
        is joined, and `build_status` tells of it. `rebuild` makes a new version all the same; the old one
        stays, for what stands on it.

        NotFound or Unsupported, with the mend, where it has to be made elsewhere (`template_builds`)."""

    @abc.abstractmethod
    async def build_status(self, name: str) -> TemplateBuild:
        """Of the build that runs, or the one that failed last, or else of what is there. NotFound."""

    @abc.abstractmethod
    async def delete(self, template_id: str) -> None:
        """Idempotent. Conflict while a snapshot or a sandbox stands on it."""


class InboundAccess(abc.ABC):
    """Reaching a sandbox's own ports from outside."""

    @abc.abstractmethod
    def endpoint(self, sandbox: Sandbox, port: int) -> Endpoint:
        """Where to dial `port`. While inbound is closed each request needs `TOKEN_HEADER` too."""

    TOKEN_HEADER = "e2b-traffic-access-token"  # noqa: S105 (a name, not a secret)


class Pausing(abc.ABC):
    @abc.abstractmethod
    async def pause(self, sandbox_id: str) -> None:
        """Freeze it with its memory. Idempotent. Resume by `connect`."""


class NetworkControl(abc.ABC):
    @abc.abstractmethod
    async def update(self, sandbox_id: str, policy: NetworkPolicy) -> None:
        """Replace the whole policy of a running sandbox. Idempotent."""


class Terminal(abc.ABC):
    """A pseudo-terminal. Iterating gives its output until its shell ends."""

    @property
    @abc.abstractmethod
    def exit(self) -> ExecExit | None:
        """How the shell ended, once iterating has; None before, and if nobody knows."""

    @abc.abstractmethod
    def __aiter__(self) -> AsyncIterator[bytes]: ...

    @abc.abstractmethod
    async def write(self, data: bytes) -> None:
        """As if typed. NotFound once the shell has ended."""

    @abc.abstractmethod
    async def resize(self, *, cols: int, rows: int) -> None: ...

    @abc.abstractmethod
    async def kill(self) -> None:
        """End the shell and what runs in it. Idempotent; never raises."""


class TerminalAccess(abc.ABC):
    """A terminal that was opened with a name is found by it, as long as its shell runs, by any process that
    may reach the sandbox. Whoever is attached sees the same; the slowest reader sets the pace."""

    @abc.abstractmethod
    def open(
        self,
        sandbox: Sandbox,
        *,
        name: str | None = None,
        cols: int = 80,
        rows: int = 24,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str = DEFAULT_USER,
    ) -> AbstractAsyncContextManager[Terminal]:
        """A login shell on a terminal. Leaving the block ends it, unless it has a name."""

    @abc.abstractmethod
    def attach(
        self, sandbox: Sandbox, name: str, *, user: str = DEFAULT_USER
    ) -> AbstractAsyncContextManager[Terminal]:
        """The terminal of that name, from here on; of what it put out while nobody looked, as much as the
        backend keeps. Leaving the block leaves it running. NotFound if its shell has ended, or the
        end at once if that was a moment ago."""

    @abc.abstractmethod
    async def names(self, sandbox: Sandbox) -> frozenset[str]:
        """Of what runs there under a name."""


class ByteStream(abc.ABC):
    """A connection, for what is relayed and not understood."""

    @abc.abstractmethod
    async def read(self) -> bytes:
        """b"" at the end. Unavailable if the connection breaks."""

    @abc.abstractmethod
    async def write(self, data: bytes) -> None:
        """Returns once there is room for more. Unavailable if the connection breaks."""

    @abc.abstractmethod
    async def aclose(self) -> None: ...


class ProtocolAccess(abc.ABC):
    """The E2B protocol as the backend itself serves it, for a gateway that relays it.

    A backend whose envd asks for no token leaves `envdAccessToken` out of its answers: whoever lets others
    in has to ask for one itself.
    """

    doubtful: frozenset[int] = frozenset()
    """Statuses by which what stands in front of the data plane may say that a sandbox is gone, asleep or deaf;
    a port's own server may mean something else by them, so the control plane has to be asked."""

    @abc.abstractmethod
    async def create(
        self,
        request: CreateRequest,
        *,
        auto_resume: bool,
        mask_request_host: str | None = None,
        idempotency_key: str | None = None,
    ) -> Mapping[str, Any]:
        """Like `SandboxClient.create`, with what the contract has no word for and the whole of the
        server's answer. `auto_resume` holds in place of the request's: it may go with KILL here."""

    @abc.abstractmethod
    async def connect(
        self, sandbox_id: str, *, timeout_s: int | None
    ) -> tuple[bool, Mapping[str, Any]]:
        """Whether this woke it, and the whole of the server's answer."""

    @abc.abstractmethod
    async def call(
        self,
        op: str,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        about: str = "",
    ) -> tuple[Mapping[str, str], Any]:
        """Any other call of the control plane: the answer's headers and its JSON, None if it has none.
        Refusals are raised, their HTTP status in `status`; `about` names the thing in the sentence."""

    @abc.abstractmethod
    async def dial(self, sandbox: Sandbox, port: int) -> tuple[Endpoint, ByteStream]:
        """A fresh connection to the data plane; each request on it needs the endpoint's headers, the traffic
        token among them where envd's own port asks for it. Unavailable if nothing answers."""
