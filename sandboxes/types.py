"""The values that cross the contract: frozen, provider-neutral, with units in their names.

Times are aware UTC datetimes. Paths are absolute POSIX paths inside the sandbox.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sandboxes.network import NetworkPolicy

__all__ = [
    "DEFAULT_USER",
    "CreateRequest",
    "Endpoint",
    "ExecEvent",
    "ExecExit",
    "ExecOutput",
    "ExecRequest",
    "ExecResult",
    "ExecStarted",
    "FileEntry",
    "FileType",
    "ListFilter",
    "OnTimeout",
    "Sandbox",
    "SandboxInfo",
    "SandboxState",
    "SnapshotInfo",
    "Stream",
    "TemplateBuild",
    "TemplateInfo",
    "TemplateStatus",
    "TimeoutPolicy",
]

DEFAULT_USER = "user"
"""The unprivileged account (uid 1000) that runs skills. Only installs run as root."""


class SandboxState(enum.StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    TRANSITIONING = "transitioning"
    """On its way between two states; still owned."""
    TERMINAL = "terminal"
    """Dead for good: a binding to it may be replaced."""
    UNKNOWN = "unknown"
    """A state that this version does not know; treat it as transient."""


class OnTimeout(enum.StrEnum):
    PAUSE = "pause"
    KILL = "kill"


class FileType(enum.StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    OTHER = "other"


class TemplateStatus(enum.StrEnum):
    READY = "ready"
    BUILDING = "building"
    FAILED = "failed"


class Stream(enum.StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutPolicy:
    """When an unused sandbox is reclaimed, and how.

    `timeout_s` counts from the last create, connect or (where the backend measures it) use.
    `auto_resume` lets any call on a paused sandbox wake it; it needs `on_timeout=PAUSE`.
    """

    timeout_s: float
    on_timeout: OnTimeout = OnTimeout.KILL
    auto_resume: bool = False

    def __post_init__(self) -> None:
        if self.timeout_s < 0:
            raise ValueError("timeout_s must be zero or more")
        if self.auto_resume and self.on_timeout is not OnTimeout.PAUSE:
            raise ValueError("auto_resume needs on_timeout=PAUSE")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRequest:
    """What a new sandbox is made of. `template` is a template's or a snapshot's id or name.

    The policy is required: both network switches travel explicitly on every create, so that no
    provider's default is ever inherited.
    """

    template: str
    network: NetworkPolicy
    timeout: TimeoutPolicy
    metadata: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """A handle on a live sandbox, as `create` and `connect` return it.

    `metadata` is None where the provider does not return it on this call. `access_token` opens the
    data plane, `traffic_token` the sandbox's own ports while inbound is closed; both are secrets.
    `resumed` says that this connect woke a paused sandbox.
    """

    id: str
    template_id: str
    metadata: Mapping[str, str] | None = None
    access_token: str | None = field(default=None, repr=False)
    traffic_token: str | None = field(default=None, repr=False)
    domain: str | None = None
    resumed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxInfo:
    """What the provider knows of a sandbox. `end_at` is None if it never times out."""

    id: str
    template_id: str
    state: SandboxState
    raw_state: str
    metadata: Mapping[str, str]
    started_at: datetime | None
    end_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFilter:
    """All `metadata` pairs must match; an empty `states` means any."""

    metadata: Mapping[str, str] = field(default_factory=dict)
    states: frozenset[SandboxState] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecRequest:
    """One command. `argv` is executed as it is, found on PATH, with no shell in between.

    `stdin=None` gives the command an empty standard input. `timeout_s=None` means no deadline;
    at the deadline the whole process tree is killed and the result says `killed`.
    """

    argv: tuple[str, ...]
    stdin: bytes | AsyncIterable[bytes] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    user: str = DEFAULT_USER
    timeout_s: float | None = 60.0

    def __post_init__(self) -> None:
        if not self.argv:
            raise ValueError("argv must name a command")
        if self.timeout_s is not None and self.timeout_s <= 0:
            raise ValueError("timeout_s must be positive; None means no deadline")

    @staticmethod
    def shell_argv(script: str) -> tuple[str, ...]:
        """The argv that runs `script`, written by a person, in a login shell."""
        return ("/bin/bash", "-l", "-c", script)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecStarted:
    """Always the first event. `pid` is the process id as the sandbox's own processes see it."""

    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecOutput:
    stream: Stream
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecExit:
    """Always the last event. Death by signal n gives `exit_code` 128+n, as shells report it."""

    exit_code: int
    killed: bool
    duration_s: float


ExecEvent = ExecStarted | ExecOutput | ExecExit


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """A finished command, collected. `truncated` says that output past the caller's cap was dropped."""

    stdout: bytes
    stderr: bytes
    exit_code: int
    killed: bool
    duration_s: float
    truncated: bool = False

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.killed


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One file as `stat` and `list` report it; a link is never followed."""

    name: str
    path: str
    type: FileType
    size_bytes: int
    mode: int
    owner: str
    group: str
    modified_at: datetime
    link_target: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotInfo:
    """`id` is usable as a template. `names` are labels, never references."""

    id: str
    names: tuple[str, ...] = ()
    source_sandbox_id: str | None = None
    created_at: datetime | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateInfo:
    id: str
    names: tuple[str, ...]
    status: TemplateStatus
    created_at: datetime | None = None
    size_bytes: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateBuild:
    """How far the making of a template is. `fraction` is 0 to 1, or None where that is unknown; `step` says
    what is being done, `error` why it failed, each for people. `template_id` is known once it is READY."""

    name: str
    status: TemplateStatus
    step: str = ""
    fraction: float | None = None
    error: str = ""
    template_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """How to dial a port of a sandbox: a URL, the headers that route it, and for a backend on
    this host the unix socket behind it. The traffic token is not among the headers."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    socket_path: str | None = None
