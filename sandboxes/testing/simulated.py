"""A sandbox provider in memory: test equipment, for tests at scale and for fault injection.

`SimulatedProvider` is the account: what exists, the clock, the faults. Any number of
`SimulatedClient`s share one, as replicas of the product share a real provider. It keeps the whole
contract but runs no programs: `exec` knows the few commands in `COMMANDS`, and a test may add its own.
"""

from __future__ import annotations

import asyncio
import itertools
import posixpath
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from sandboxes.capabilities import Capabilities
from sandboxes.client import (
    FileStore,
    InboundAccess,
    NetworkControl,
    Pausing,
    SandboxClient,
    SnapshotStore,
    TemplateCatalog,
)
from sandboxes.errors import Conflict, InvalidRequest, NotFound, SandboxError
from sandboxes.network import NetworkPolicy
from sandboxes.types import (
    DEFAULT_USER,
    CreateRequest,
    Endpoint,
    ExecEvent,
    ExecExit,
    ExecOutput,
    ExecRequest,
    ExecStarted,
    FileEntry,
    FileType,
    ListFilter,
    OnTimeout,
    Sandbox,
    SandboxInfo,
    SandboxState,
    SnapshotInfo,
    Stream,
    TemplateBuild,
    TemplateInfo,
    TemplateStatus,
)

__all__ = ["COMMANDS", "Phase", "SimulatedClient", "SimulatedProvider", "SimulatedSandbox"]

Phase = str
"""`before`: an error means that nothing happened; `after`: it happened, but nobody heard of it."""
Intercept = Callable[[str, Phase, str], Awaitable[None]]
"""Awaited with (op, phase, sandbox id or "") around every call; may raise, wait or block."""


@dataclass(slots=True)
class _Node:
    type: FileType
    data: bytes
    owner: str
    modified_at: datetime


Files = dict[str, _Node]


@dataclass(slots=True, kw_only=True)
class SimulatedSandbox:
    info: SandboxInfo
    request: CreateRequest
    files: Files
    traffic_token: str | None

    @property
    def id(self) -> str:
        return self.info.id


@dataclass(slots=True, kw_only=True)
class _Fault:
    op: str
    error: BaseException
    phase: Phase


CommandResult = tuple[int, bytes, bytes]
Command = Callable[[SimulatedSandbox, ExecRequest, bytes], Awaitable[CommandResult]]


class SimulatedProvider:
    """`returns_tokens=False` gives the traffic token on create only, as some providers do."""

    def __init__(
        self,
        *,
        templates: Iterable[str] = ("base",),
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        latency_s: float = 0.0,
        inbound_tokens: bool = True,
        returns_tokens: bool = True,
    ) -> None:
        self.clock = clock
        self.latency_s = latency_s
        self.inbound_tokens = inbound_tokens
        self.returns_tokens = returns_tokens
        self.templates = {name: self.clock() for name in templates}
        self.building: dict[str, float] = {}
        """How far builds are, by name; only where `builds_take_time`, and until a test ends them."""
        self.builds_take_time = False
        self.snapshots: dict[str, tuple[SnapshotInfo, Files]] = {}
        self.sandboxes: dict[str, SimulatedSandbox] = {}
        self.calls: Counter[str] = Counter()
        self.created: list[str] = []
        self.intercept: Intercept | None = None
        self.commands = dict(COMMANDS)
        self._faults: list[_Fault] = []
        self._ids = itertools.count(1)

    def client(self) -> SimulatedClient:
        return SimulatedClient(self)

    def fail_next(self, op: str, error: BaseException, *, phase: Phase = "before") -> None:
        """Raise `error` from the next call of this contract method; `after` it took effect if asked."""
        self._faults.append(_Fault(op=op, error=error, phase=phase))

    def live(self) -> list[SimulatedSandbox]:
        """Those that exist now, oldest first."""
        self._expire()
        return list(self.sandboxes.values())

    def vanish(self, sandbox_id: str) -> None:
        """Kill it from outside."""
        del self.sandboxes[sandbox_id]

    def set_state(self, sandbox_id: str, state: SandboxState) -> None:
        sandbox = self.sandboxes[sandbox_id]
        sandbox.info = replace(sandbox.info, state=state, raw_state=state.value)

    def start(self, request: CreateRequest, *, started_at: datetime | None = None) -> Sandbox:
        """A sandbox put there by the test, past every fault; its timeout counts from now."""
        if request.template in self.snapshots:
            files = {p: replace(node) for p, node in self.snapshots[request.template][1].items()}
        elif request.template in self.templates:
            files = {}
        else:
            raise InvalidRequest(
                f"There is no template called “{request.template}”.", op="create", status=404
            )
        sandbox_id = f"sim{next(self._ids):06d}"
        closed = self.inbound_tokens and not request.network.inbound
        now = self.clock()
        sandbox = SimulatedSandbox(
            info=SandboxInfo(
                id=sandbox_id,
                template_id=request.template,
                state=SandboxState.RUNNING,
                raw_state="running",
                metadata=dict(request.metadata),
                started_at=started_at or now,
                end_at=now + timedelta(seconds=request.timeout.timeout_s),
            ),
            request=request,
            files=files,
            traffic_token=f"token-of-{sandbox_id}" if closed else None,
        )
        self.sandboxes[sandbox_id] = sandbox
        self.created.append(sandbox_id)
        return self._handle(sandbox, token=sandbox.traffic_token)

    @asynccontextmanager
    async def call(self, op: str, sandbox_id: str = "") -> AsyncIterator[None]:
        """Around one contract call: counts it, lets time pass, injects what the test asked for."""
        self.calls[op] += 1
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        await self._phase(op, "before", sandbox_id)
        self._expire()
        yield
        await self._phase(op, "after", sandbox_id)

    def get(self, sandbox_id: str) -> SimulatedSandbox:
        try:
            return self.sandboxes[sandbox_id]
        except KeyError:
            raise NotFound(f"There is no sandbox {sandbox_id}.", status=404) from None

    def running(self, sandbox_id: str) -> SimulatedSandbox:
        sandbox = self.get(sandbox_id)
        if sandbox.info.state is not SandboxState.RUNNING:
            raise Conflict(f"Sandbox {sandbox_id} is {sandbox.info.raw_state}.", status=409)
        return sandbox

    def wake(self, sandbox_id: str, token: str | None, timeout_s: float | None) -> Sandbox:
        sandbox = self.get(sandbox_id)
        info = sandbox.info
        if info.state not in (SandboxState.RUNNING, SandboxState.PAUSED):
            raise Conflict(f"Sandbox {sandbox_id} is {info.raw_state}.", status=409)
        span = sandbox.request.timeout.timeout_s if timeout_s is None else timeout_s
        end_at = self.clock() + timedelta(seconds=span)
        if info.end_at is not None:
            end_at = max(end_at, info.end_at)
        resumed = info.state is SandboxState.PAUSED
        sandbox.info = replace(info, state=SandboxState.RUNNING, raw_state="running", end_at=end_at)
        given = sandbox.traffic_token if self.returns_tokens else token
        return replace(self._handle(sandbox, token=given), resumed=resumed)

    def snapshot(self, sandbox_id: str, name: str) -> SnapshotInfo:
        sandbox = self.get(sandbox_id)
        info = SnapshotInfo(
            id=f"snap{next(self._ids):06d}",
            names=(name,),
            source_sandbox_id=sandbox_id,
            created_at=self.clock(),
            size_bytes=sum(len(node.data) for node in sandbox.files.values()),
        )
        self.snapshots[info.id] = (info, {p: replace(node) for p, node in sandbox.files.items()})
        return info

    def _handle(self, sandbox: SimulatedSandbox, *, token: str | None) -> Sandbox:
        return Sandbox(
            id=sandbox.id,
            template_id=sandbox.info.template_id,
            metadata=dict(sandbox.info.metadata),
            access_token=f"access-of-{sandbox.id}",
            traffic_token=token,
        )

    async def _phase(self, op: str, phase: Phase, sandbox_id: str) -> None:
        if self.intercept is not None:
            await self.intercept(op, phase, sandbox_id)
        for fault in self._faults:
            if fault.op == op and fault.phase == phase:
                self._faults.remove(fault)
                raise fault.error

    def _expire(self) -> None:
        now = self.clock()
        for sandbox in list(self.sandboxes.values()):
            info = sandbox.info
            due = info.end_at is not None and info.end_at <= now
            if not due or info.state is not SandboxState.RUNNING:
                continue
            if sandbox.request.timeout.on_timeout is OnTimeout.PAUSE:
                self.set_state(sandbox.id, SandboxState.PAUSED)
            else:
                del self.sandboxes[sandbox.id]


class SimulatedClient(SandboxClient):
    provider = "simulated"

    def __init__(self, account: SimulatedProvider) -> None:
        self.account = account
        self.capabilities = Capabilities(
            files=True,
            snapshots=True,
            snapshot_keeps_processes=False,
            templates=True,
            template_builds=True,
            pause=True,
            idle_timeout=True,
            outbound_switch=True,
            outbound_cidr_lists=True,
            outbound_domain_lists=True,
            private_ranges_closed=True,
            inbound_switch=True,
            inbound_token=account.inbound_tokens,
            network_update=True,
            terminal=False,
            resource_limits=False,
            notes={"terminal": "Nothing runs in a simulated sandbox."},
        )

    async def health(self) -> None:
        async with self.account.call("health"):
            pass

    async def create(self, request: CreateRequest) -> Sandbox:
        async with self.account.call("create"):
            return self.account.start(request)

    async def connect(
        self, sandbox_id: str, *, traffic_token: str | None = None, timeout_s: float | None = None
    ) -> Sandbox:
        async with self.account.call("connect", sandbox_id):
            return self.account.wake(sandbox_id, traffic_token, timeout_s)

    async def get(self, sandbox_id: str) -> SandboxInfo:
        async with self.account.call("get", sandbox_id):
            return self.account.get(sandbox_id).info

    async def list(self, filter: ListFilter) -> AsyncIterator[SandboxInfo]:
        async with self.account.call("list"):
            found = [sandbox.info for sandbox in self.account.sandboxes.values()]
        wanted = filter.metadata.items()
        for info in reversed(found):
            if filter.states and info.state not in filter.states:
                continue
            if all(info.metadata.get(key) == value for key, value in wanted):
                yield info

    async def delete(self, sandbox_id: str) -> None:
        async with self.account.call("delete", sandbox_id):
            self.account.get(sandbox_id)
            del self.account.sandboxes[sandbox_id]

    @asynccontextmanager
    async def exec(
        self, sandbox: Sandbox, request: ExecRequest
    ) -> AsyncIterator[AsyncIterator[ExecEvent]]:
        async with self.account.call("exec", sandbox.id):
            target = self.account.running(sandbox.id)
        yield self._events(target, request)

    async def _events(
        self, sandbox: SimulatedSandbox, request: ExecRequest
    ) -> AsyncIterator[ExecEvent]:
        yield ExecStarted(pid=1)
        begun = asyncio.get_running_loop().time()
        killed = False
        command = self.account.commands.get(request.argv[0])
        code, out, err = 127, b"", f"{request.argv[0]}: command not found\n".encode()
        if command is not None:
            try:
                async with asyncio.timeout(request.timeout_s):
                    code, out, err = await command(sandbox, request, await _collect(request.stdin))
            except TimeoutError:
                code, out, err, killed = 137, b"", b"", True
        self.account.get(sandbox.id)
        if out:
            yield ExecOutput(stream=Stream.STDOUT, data=out)
        if err:
            yield ExecOutput(stream=Stream.STDERR, data=err)
        duration_s = asyncio.get_running_loop().time() - begun
        yield ExecExit(exit_code=code, killed=killed, duration_s=duration_s)

    async def aclose(self) -> None:
        pass

    @property
    def files(self) -> FileStore:
        return _Files(self.account)

    @property
    def snapshots(self) -> SnapshotStore:
        return _Snapshots(self.account)

    @property
    def templates(self) -> TemplateCatalog:
        return _Templates(self.account)

    @property
    def inbound(self) -> InboundAccess:
        return _Inbound()

    @property
    def pausing(self) -> Pausing:
        return _Pausing(self.account)

    @property
    def network(self) -> NetworkControl:
        return _Network(self.account)


@dataclass(slots=True)
class _Files(FileStore):
    account: SimulatedProvider

    @asynccontextmanager
    async def read(
        self, sandbox: Sandbox, path: str, *, user: str = DEFAULT_USER
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        async with self.account.call("files.read", sandbox.id):
            node = _existing(self._tree(sandbox), path)
            if node.type is FileType.DIRECTORY:
                raise InvalidRequest(f"{path} is a directory.")
        yield _chunks(node.data)

    async def write(
        self,
        sandbox: Sandbox,
        path: str,
        data: bytes | AsyncIterable[bytes],
        *,
        user: str = DEFAULT_USER,
    ) -> None:
        content = await _collect(data)
        async with self.account.call("files.write", sandbox.id):
            tree, path = self._tree(sandbox), _normal(path)
            if path in tree and tree[path].type is FileType.DIRECTORY:
                raise InvalidRequest(f"{path} is a directory.")
            self._make_dirs(tree, posixpath.dirname(path), user)
            tree[path] = _Node(FileType.FILE, content, user, self.account.clock())

    async def list(
        self, sandbox: Sandbox, path: str, *, depth: int = 1, user: str = DEFAULT_USER
    ) -> list[FileEntry]:
        async with self.account.call("files.list", sandbox.id):
            tree, path = self._tree(sandbox), _normal(path)
            if path != "/" and _existing(tree, path).type is not FileType.DIRECTORY:
                raise InvalidRequest(f"{path} is a file.")
            below = path.rstrip("/") + "/"
            names = [p for p in tree if p.startswith(below) and p[len(below) :].count("/") < depth]
        return [_entry(name, tree[name]) for name in sorted(names)]

    async def stat(self, sandbox: Sandbox, path: str, *, user: str = DEFAULT_USER) -> FileEntry:
        async with self.account.call("files.stat", sandbox.id):
            node = _existing(self._tree(sandbox), path)
        return _entry(_normal(path), node)

    async def make_dir(self, sandbox: Sandbox, path: str, *, user: str = DEFAULT_USER) -> None:
        async with self.account.call("files.make_dir", sandbox.id):
            self._make_dirs(self._tree(sandbox), _normal(path), user)

    async def move(
        self, sandbox: Sandbox, source: str, target: str, *, user: str = DEFAULT_USER
    ) -> None:
        async with self.account.call("files.move", sandbox.id):
            tree, source, target = self._tree(sandbox), _normal(source), _normal(target)
            _existing(tree, source)
            if target in tree and tree[target].type is FileType.DIRECTORY:
                raise Conflict(f"{target} is a directory.")
            self._make_dirs(tree, posixpath.dirname(target), user)
            for name in [p for p in tree if p == source or p.startswith(source + "/")]:
                tree[target + name.removeprefix(source)] = tree.pop(name)

    async def remove(self, sandbox: Sandbox, path: str, *, user: str = DEFAULT_USER) -> None:
        async with self.account.call("files.remove", sandbox.id):
            tree, path = self._tree(sandbox), _normal(path)
            for name in [p for p in tree if p == path or p.startswith(path + "/")]:
                del tree[name]

    def _tree(self, sandbox: Sandbox) -> Files:
        return self.account.running(sandbox.id).files

    def _make_dirs(self, tree: Files, path: str, user: str) -> None:
        while path != "/":
            node = tree.setdefault(path, _Node(FileType.DIRECTORY, b"", user, self.account.clock()))
            if node.type is not FileType.DIRECTORY:
                raise InvalidRequest(f"{path} is a file.")
            path = posixpath.dirname(path)


@dataclass(slots=True)
class _Snapshots(SnapshotStore):
    account: SimulatedProvider

    async def create(self, sandbox_id: str, *, name: str) -> SnapshotInfo:
        async with self.account.call("snapshots.create", sandbox_id):
            return self.account.snapshot(sandbox_id, name)

    async def list(self, *, sandbox_id: str | None = None) -> AsyncIterator[SnapshotInfo]:
        async with self.account.call("snapshots.list"):
            found = [info for info, _ in self.account.snapshots.values()]
        for info in found:
            if sandbox_id is None or info.source_sandbox_id == sandbox_id:
                yield info

    async def delete(self, snapshot_id: str) -> None:
        async with self.account.call("snapshots.delete"):
            used = (s.info.template_id == snapshot_id for s in self.account.sandboxes.values())
            if any(used):
                raise Conflict(f"Sandboxes still use snapshot {snapshot_id}.", status=409)
            self.account.snapshots.pop(snapshot_id, None)


@dataclass(slots=True)
class _Templates(TemplateCatalog):
    account: SimulatedProvider

    async def list(self) -> AsyncIterator[TemplateInfo]:
        async with self.account.call("templates.list"):
            found = list(self.account.templates)
        for name in found:
            yield self._info(name)

    async def get(self, template_id: str) -> TemplateInfo:
        async with self.account.call("templates.get"):
            if template_id not in self.account.templates:
                raise NotFound(f"There is no template called “{template_id}”.", status=404)
        return self._info(template_id)

    async def ensure(self, name: str, *, rebuild: bool = False) -> TemplateBuild:
        async with self.account.call("templates.ensure"):
            if rebuild or name not in self.account.templates:
                if self.account.builds_take_time:
                    self.account.building[name] = 0.0
                else:
                    self.account.templates[name] = self.account.clock()
        return await self.build_status(name)

    async def build_status(self, name: str) -> TemplateBuild:
        if (fraction := self.account.building.get(name)) is not None:
            status = TemplateStatus.BUILDING
            return TemplateBuild(name=name, status=status, step="building", fraction=fraction)
        info = await self.get(name)
        return TemplateBuild(name=name, status=info.status, fraction=1.0, template_id=info.id)

    async def delete(self, template_id: str) -> None:
        async with self.account.call("templates.delete"):
            used = (s.info.template_id == template_id for s in self.account.sandboxes.values())
            if any(used):
                raise Conflict(f"Sandboxes still use template {template_id}.", status=409)
            self.account.templates.pop(template_id, None)

    def _info(self, name: str) -> TemplateInfo:
        return TemplateInfo(
            id=name,
            names=(name,),
            status=TemplateStatus.READY,
            created_at=self.account.templates.get(name),
        )


class _Inbound(InboundAccess):
    def endpoint(self, sandbox: Sandbox, port: int) -> Endpoint:
        return Endpoint(url=f"http://{port}-{sandbox.id}.simulated.invalid")


@dataclass(slots=True)
class _Pausing(Pausing):
    account: SimulatedProvider

    async def pause(self, sandbox_id: str) -> None:
        async with self.account.call("pause", sandbox_id):
            self.account.get(sandbox_id)
            self.account.set_state(sandbox_id, SandboxState.PAUSED)


@dataclass(slots=True)
class _Network(NetworkControl):
    account: SimulatedProvider
    history: list[NetworkPolicy] = field(default_factory=list)

    async def update(self, sandbox_id: str, policy: NetworkPolicy) -> None:
        async with self.account.call("network.update", sandbox_id):
            sandbox = self.account.get(sandbox_id)
            sandbox.request = replace(sandbox.request, network=policy)


async def _true(sandbox: SimulatedSandbox, request: ExecRequest, stdin: bytes) -> CommandResult:
    return 0, b"", b""


async def _false(sandbox: SimulatedSandbox, request: ExecRequest, stdin: bytes) -> CommandResult:
    return 1, b"", b""


async def _echo(sandbox: SimulatedSandbox, request: ExecRequest, stdin: bytes) -> CommandResult:
    return 0, " ".join(request.argv[1:]).encode() + b"\n", b""


async def _cat(sandbox: SimulatedSandbox, request: ExecRequest, stdin: bytes) -> CommandResult:
    if len(request.argv) == 1:
        return 0, stdin, b""
    try:
        return 0, b"".join(_existing(sandbox.files, p).data for p in request.argv[1:]), b""
    except SandboxError as error:
        return 1, b"", f"cat: {error}\n".encode()


async def _printenv(sandbox: SimulatedSandbox, request: ExecRequest, stdin: bytes) -> CommandResult:
    env = {**sandbox.request.env, **request.env}
    return 0, "".join(f"{name}={value}\n" for name, value in sorted(env.items())).encode(), b""


async def _sleep(sandbox: SimulatedSandbox, request: ExecRequest, stdin: bytes) -> CommandResult:
    await asyncio.sleep(float(request.argv[1]))
    return 0, b"", b""


COMMANDS: dict[str, Command] = {
    "true": _true,
    "false": _false,
    "echo": _echo,
    "cat": _cat,
    "printenv": _printenv,
    "sleep": _sleep,
}


def _normal(path: str) -> str:
    if not path.startswith("/"):
        raise InvalidRequest(f"{path} is no absolute path.")
    return posixpath.normpath("/" + path.lstrip("/"))


def _existing(tree: Files, path: str) -> _Node:
    try:
        return tree[_normal(path)]
    except KeyError:
        raise NotFound(f"There is no {path}.") from None


def _entry(path: str, node: _Node) -> FileEntry:
    return FileEntry(
        name=posixpath.basename(path),
        path=path,
        type=node.type,
        size_bytes=len(node.data),
        mode=0o755 if node.type is FileType.DIRECTORY else 0o644,
        owner=node.owner,
        group=node.owner,
        modified_at=node.modified_at,
    )


async def _collect(data: bytes | AsyncIterable[bytes] | None) -> bytes:
    if data is None or isinstance(data, bytes):
        return data or b""
    return b"".join([chunk async for chunk in data])


async def _chunks(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 65536):
        yield data[start : start + 65536]
