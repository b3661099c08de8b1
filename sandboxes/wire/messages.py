"""The JSON of the E2B protocol as both of its ends here see it: field names, versions, encodings.

Keys are the wire's own (mixed case and all). `total=False` marks fields that may be absent; zero
values of Connect messages are left out, as proto3 JSON does.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

__all__ = [
    "ACCESS_TOKEN_HEADER",
    "API_KEY_HEADER",
    "DEFAULT_TIMEOUT_S",
    "DEFAULT_TIMEOUT_V1_S",
    "ENGINE_PATH",
    "ENVD_PORT",
    "ENVD_VERSION",
    "GATEWAY_ENGINE",
    "NOT_FOUND_TEXT",
    "PORT_CLOSED_TEXT",
    "SANDBOX_ID_HEADER",
    "SANDBOX_PORT_HEADER",
    "TRAFFIC_TOKEN_HEADER",
    "ConnectRequestBody",
    "EngineInfo",
    "EntryInfo",
    "ErrorBody",
    "FilesystemEvent",
    "ListedSandbox",
    "NetworkConfig",
    "NewSandbox",
    "ProcessConfig",
    "ProcessEnd",
    "ProcessInfo",
    "ProcessSelector",
    "SandboxDetail",
    "SandboxMetric",
    "SandboxReply",
    "SnapshotReply",
    "StartRequest",
    "TemplateBuildReply",
    "TemplateReply",
    "UploadedFile",
]

ENVD_VERSION = "0.6.4"
"""What we report, and so promise: SDKs switch features on by it."""

ENVD_PORT = 49983
DEFAULT_TIMEOUT_S = 300
DEFAULT_TIMEOUT_V1_S = 15
"""`POST /sandboxes` of SDK 2.50 and older has a default of its own."""

ENGINE_PATH = "/sandboxd/engine"
"""Ours: what a server can do, for which the protocol has no word."""
GATEWAY_ENGINE = "gateway"
"""The engine of a server that passes on what another one can do."""

API_KEY_HEADER = "X-API-Key"
ACCESS_TOKEN_HEADER = "X-Access-Token"  # noqa: S105 - a header's name
TRAFFIC_TOKEN_HEADER = "e2b-traffic-access-token"  # noqa: S105 - a header's name
SANDBOX_ID_HEADER = "E2b-Sandbox-Id"
SANDBOX_PORT_HEADER = "E2b-Sandbox-Port"

NOT_FOUND_TEXT = "The sandbox was not found"
"""SDKs search a 502's message for "was not found": gone, or paused and not to be woken."""
PORT_CLOSED_TEXT = "The sandbox is running but port is not open"


class ErrorBody(TypedDict):
    code: int
    message: str


class LifecycleSwitch(TypedDict, total=False):
    enabled: bool


class NetworkConfig(TypedDict, total=False):
    allowPublicTraffic: bool
    allowOut: list[str]
    denyOut: list[str]
    maskRequestHost: str
    allow_internet_access: bool
    """Beside `network` in a create, inside the body of `PUT /sandboxes/{id}/network`."""


class NewSandbox(TypedDict, total=False):
    """`POST /v2/sandboxes`; `secure` only in v1, where it asks for an access token."""

    templateID: str
    timeout: int
    autoPause: bool
    autoPauseMemory: bool
    autoResume: LifecycleSwitch
    allow_internet_access: bool
    network: NetworkConfig
    metadata: dict[str, str]
    envVars: dict[str, str]
    secure: bool


class ConnectRequestBody(TypedDict, total=False):
    timeout: int
    memory: bool


class SandboxReply(TypedDict):
    """Answer to create (201), connect (200 running, 201 resumed) and resume (201)."""

    templateID: str
    sandboxID: str
    clientID: str
    envdVersion: str
    alias: NotRequired[str]
    envdAccessToken: NotRequired[str]
    trafficAccessToken: str | None
    domain: str | None


class ListedSandbox(TypedDict):
    templateID: str
    sandboxID: str
    clientID: str
    startedAt: str
    endAt: str
    envdVersion: str
    cpuCount: int
    memoryMB: int
    diskSizeMB: int
    state: Literal["running", "paused"]
    metadata: dict[str, str]
    alias: NotRequired[str]


class SandboxLifecycle(TypedDict):
    autoResume: bool
    onTimeout: Literal["pause", "kill"]


class SandboxDetail(ListedSandbox):
    envdAccessToken: NotRequired[str]
    allowInternetAccess: bool
    domain: str | None
    network: NetworkConfig
    lifecycle: SandboxLifecycle
    pauseMode: NotRequired[Literal["full"]]


class SandboxMetric(TypedDict):
    timestamp: str
    timestampUnix: int
    cpuCount: int
    cpuUsedPct: float
    memUsed: int
    memTotal: int
    memCache: int
    diskUsed: int
    diskTotal: int


class SnapshotReply(TypedDict):
    snapshotID: str
    names: list[str]
    createdAt: NotRequired[str]
    sizeBytes: NotRequired[int]
    """Ours: the official clients ignore what they don't know."""
    sandboxID: NotRequired[str]
    """Ours: the sandbox that it was taken of."""


class TemplateReply(TypedDict):
    templateID: str
    buildID: str
    cpuCount: int
    memoryMB: int
    diskSizeMB: int
    public: bool
    aliases: list[str]
    names: list[str]
    createdAt: str
    updatedAt: str
    createdBy: None
    lastSpawnedAt: str | None
    spawnCount: int
    buildCount: int
    envdVersion: str
    buildStatus: Literal["ready"]
    sizeBytes: int
    """Ours."""


class TemplateBuildReply(TypedDict):
    """`/sandboxd/templates/{name}/build`, ours. POST begins it, with {"rebuild": bool}; GET tells of it."""

    name: str
    status: Literal["building", "ready", "error"]
    step: str
    fraction: float | None
    error: str
    templateID: str


class EngineInfo(TypedDict):
    """`GET` of ENGINE_PATH: what the protocol has no word for. `capabilities` has the fields of
    `sandboxes.capabilities.Capabilities` but its notes, which stand beside it."""

    id: str
    """Of the data directory: the same through every address that leads there."""
    engine: str
    version: str
    capabilities: dict[str, bool]
    notes: dict[str, str]


# process.Process


class ProcessSelector(TypedDict, total=False):
    """Exactly one of the two."""

    pid: int
    tag: str


class ProcessConfig(TypedDict, total=False):
    cmd: str
    args: list[str]
    envs: dict[str, str]
    cwd: str


class StartRequest(TypedDict, total=False):
    process: ProcessConfig
    pty: dict[str, Any]
    tag: str
    stdin: bool
    """Absent means true: clients older than this field expect an open stdin."""


class ProcessEnd(TypedDict, total=False):
    """`exitCode` is absent for 0 and -1 for death by a signal."""

    exitCode: int
    exited: bool
    status: str
    error: str


class ProcessInfo(TypedDict):
    pid: int
    config: ProcessConfig
    tag: NotRequired[str]


# filesystem.Filesystem and /files


class EntryInfo(TypedDict):
    """`type` of a link is its target's type; `size` is an int64 and so a string."""

    name: str
    type: str
    path: str
    size: NotRequired[str]
    mode: NotRequired[int]
    permissions: str
    owner: str
    group: str
    modifiedTime: str
    symlinkTarget: NotRequired[str]
    isSymlink: NotRequired[bool]
    metadata: NotRequired[dict[str, str]]


class FilesystemEvent(TypedDict):
    name: str
    type: str
    entry: NotRequired[EntryInfo]


class UploadedFile(TypedDict):
    name: str
    path: str
    type: Literal["file"]
    metadata: NotRequired[dict[str, str]]
