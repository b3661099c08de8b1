"""E2B's cloud, self-hosted and compatible servers, and sandboxd: all that speak the E2B protocol.

The protocol has no word for what a server can do. sandboxd says so on a route of its own, read once
when the client is opened; of any other server the published behaviour of E2B is assumed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, fields, replace
from typing import Any

import httpx

from sandboxes.capabilities import Capabilities
from sandboxes.client import (
    InboundAccess,
    NetworkControl,
    Pausing,
    ProtocolAccess,
    SandboxClient,
    SnapshotStore,
    TemplateCatalog,
    Terminal,
    TerminalAccess,
)
from sandboxes.errors import Conflict, NotFound, SandboxError, Unsupported
from sandboxes.network import NetworkPolicy
from sandboxes.registry import setting
from sandboxes.types import (
    DEFAULT_USER,
    CreateRequest,
    Endpoint,
    ExecEvent,
    ExecRequest,
    ListFilter,
    Sandbox,
    SandboxInfo,
    SandboxState,
    SnapshotInfo,
    TemplateInfo,
)
from sandboxes.urlguard import UrlGuard, check_url
from sandboxes.wire.client import WireClient, WireSettings
from sandboxes.wire.control import Routes, network_update
from sandboxes.wire.envd import Addressing
from sandboxes.wire.failures import Service
from sandboxes.wire.files import EnvdFiles
from sandboxes.wire.protocol import WireProtocol
from sandboxes.wire.transport import Dial

__all__ = ["E2B_CAPABILITIES", "E2BClient", "Settings", "open_client"]

E2B_CAPABILITIES = Capabilities(
    files=True,
    snapshots=True,
    snapshot_keeps_processes=True,
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
    notes={
        "network_update": "The inbound switch of a running sandbox cannot be changed; outbound can.",
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    api_key: str = setting(label="API key", secret=True, identity=True)
    api_url: str = setting(
        label="API URL",
        help="Leave empty for https://api.DOMAIN.",
        identity=True,
        default="",
    )
    domain: str = setting(
        label="Domain",
        help="Sandboxes are reached under it.",
        identity=True,
        default="e2b.app",
    )
    sandbox_url: str = setting(
        label="Sandbox URL",
        help="One URL for the data plane of all sandboxes. Leave empty for a host name each.",
        identity=True,
        default="",
    )
    template: str = setting(
        label="Base template", help="Name or id of the template to start from.", default="base"
    )
    ca_pem: str = setting(
        label="CA certificate",
        help="PEM text of the CA that signed the server's certificate, if the system doesn't trust it.",
        default="",
        multiline=True,
    )
    allow_private: bool = setting(
        label="Allow private addresses",
        help="Only for a server inside your own network.",
        identity=True,
        default=False,
    )

    def urls(self) -> tuple[str, ...]:
        """What is dialled, for the guard to judge before it is saved."""
        return tuple(filter(None, (self.control_url, self.sandbox_url)))

    @property
    def control_url(self) -> str:
        return (self.api_url or f"https://api.{self.domain}").rstrip("/")


async def open_client(settings: Settings) -> SandboxClient:
    """Asks the server once, which routes it has and whether it is a sandboxd."""
    api_url = settings.control_url
    for url in settings.urls():
        check_url(url, allow_private=settings.allow_private)
    dial = Dial(
        ca_pem=settings.ca_pem or None, guard=UrlGuard(allow_private=settings.allow_private)
    )
    wire = WireSettings(
        service=Service(
            provider="e2b",
            place=f"the server at {api_url}",
            mend="check the API URL, the network and any proxy in between",
        ),
        api_url=api_url,
        api_key=settings.api_key,
        addressing=Addressing(
            shared_url=settings.sandbox_url.rstrip("/") or None, domain=settings.domain
        ),
        control_dial=dial,
        data_dial=dial,
    )
    return await E2BClient.open(wire)


class E2BClient(SandboxClient):
    """The contract over the E2B protocol. `transport` replaces the network in tests."""

    def __init__(
        self,
        settings: WireSettings,
        capabilities: Capabilities,
        *,
        inbound_update: bool = False,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.provider = settings.service.provider
        self.capabilities = capabilities
        self._wire = WireClient(settings, transport=transport)
        self._snapshots = _Snapshots(self._wire)
        self._templates = _Templates(self._wire, with_snapshots=capabilities.snapshots)
        self._inbound = _Inbound(self._wire)
        self._pausing = _Pausing(self._wire)
        self._network = _Network(self._wire, inbound_update=inbound_update)
        self._terminal = _Terminals(self._wire)
        self._protocol = WireProtocol(self._wire)

    @classmethod
    async def open(
        cls,
        settings: WireSettings,
        *,
        sandboxd_only: bool = False,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> E2BClient:
        """A client for whichever server is there: probes its routes and its capabilities.
        `sandboxd_only` refuses any other server than sandboxd."""
        wire = WireClient(settings, transport=transport)
        try:
            engine = await _engine(wire, required=sandboxd_only)
            routes: Routes = (
                "v2" if engine is not None or await wire.control.has_v2_routes() else "v1"
            )
        finally:
            await wire.aclose()
        return cls(
            replace(settings, routes=routes),
            E2B_CAPABILITIES if engine is None else _capabilities(engine),
            inbound_update=engine is not None,
            transport=transport,
        )

    async def health(self) -> None:
        await self._wire.control.probe()

    async def create(self, request: CreateRequest) -> Sandbox:
        return await self._wire.control.create(request)

    async def connect(
        self, sandbox_id: str, *, traffic_token: str | None = None, timeout_s: float | None = None
    ) -> Sandbox:
        return await self._wire.control.connect(
            sandbox_id, traffic_token=traffic_token, timeout_s=timeout_s
        )

    async def get(self, sandbox_id: str) -> SandboxInfo:
        return await self._wire.control.get(sandbox_id)

    def list(self, filter: ListFilter) -> AsyncIterator[SandboxInfo]:
        return self._wire.control.list_sandboxes(metadata=filter.metadata, states=filter.states)

    async def delete(self, sandbox_id: str) -> None:
        await self._wire.control.delete(sandbox_id)

    def exec(
        self, sandbox: Sandbox, request: ExecRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ExecEvent]]:
        return self._wire.processes.exec(sandbox, request)

    async def aclose(self) -> None:
        await self._wire.aclose()

    @property
    def files(self) -> EnvdFiles | None:
        return self._wire.files if self.capabilities.files else None

    @property
    def snapshots(self) -> SnapshotStore | None:
        return self._snapshots if self.capabilities.snapshots else None

    @property
    def templates(self) -> TemplateCatalog | None:
        return self._templates if self.capabilities.templates else None

    @property
    def inbound(self) -> InboundAccess | None:
        return self._inbound

    @property
    def pausing(self) -> Pausing | None:
        return self._pausing if self.capabilities.pause else None

    @property
    def network(self) -> NetworkControl | None:
        return self._network if self.capabilities.network_update else None

    @property
    def terminal(self) -> TerminalAccess | None:
        return self._terminal if self.capabilities.terminal else None

    @property
    def protocol(self) -> ProtocolAccess | None:
        return self._protocol


async def _engine(wire: WireClient, *, required: bool) -> Mapping[str, Any] | None:
    """What sandboxd says of itself, or None from a server that has no such route."""
    try:
        return await wire.control.engine()
    except SandboxError as error:
        # Servers and proxies refuse an unknown route in many ways; only silence is a failure.
        if required or error.status is None:
            raise
        return None


def _capabilities(engine: Mapping[str, Any]) -> Capabilities:
    """A capability that this sandboxd does not name yet is one that it does not have."""
    told: Mapping[str, Any] = engine.get("capabilities") or {}
    names = [field.name for field in fields(Capabilities) if field.name != "notes"]
    return Capabilities(
        **{name: told.get(name) is True for name in names},
        notes=dict(engine.get("notes") or {}),
    )


class _Snapshots(SnapshotStore):
    def __init__(self, wire: WireClient) -> None:
        self._control = wire.control

    async def create(self, sandbox_id: str, *, name: str) -> SnapshotInfo:
        return await self._control.create_snapshot(sandbox_id, name=name)

    def list(self, *, sandbox_id: str | None = None) -> AsyncIterator[SnapshotInfo]:
        return self._control.list_snapshots(sandbox_id=sandbox_id)

    async def delete(self, snapshot_id: str) -> None:
        try:
            await self._control.delete_template(snapshot_id, op="delete snapshot")
        except NotFound:
            return


class _Templates(TemplateCatalog):
    """Some servers list snapshots among the templates; they are taken out here."""

    def __init__(self, wire: WireClient, *, with_snapshots: bool) -> None:
        self._control = wire.control
        self._service = wire.settings.service
        self._with_snapshots = with_snapshots

    async def list(self) -> AsyncIterator[TemplateInfo]:
        snapshots: set[str] = set()
        if self._with_snapshots:
            async for snapshot in self._control.list_snapshots(sandbox_id=None):
                snapshots.add(snapshot.id)
        async for template in self._control.list_templates():
            if template.id not in snapshots:
                yield template

    async def get(self, template_id: str) -> TemplateInfo:
        async for template in self.list():
            if template_id == template.id or template_id in template.names:
                return template
        raise NotFound(
            f"There is no template “{template_id}” at {self._service.place}; choose another one.",
            provider=self._service.provider,
            op="get template",
        )

    async def delete(self, template_id: str) -> None:
        try:
            await self._control.delete_template(template_id, op="delete template")
        except NotFound:
            return


class _Inbound(InboundAccess):
    def __init__(self, wire: WireClient) -> None:
        self._addressing = wire.settings.addressing

    def endpoint(self, sandbox: Sandbox, port: int) -> Endpoint:
        return self._addressing.endpoint(sandbox, port)


class _Pausing(Pausing):
    def __init__(self, wire: WireClient) -> None:
        self._control = wire.control

    async def pause(self, sandbox_id: str) -> None:
        try:
            await self._control.pause(sandbox_id)
        except Conflict:
            # The protocol's answer to pausing a paused one, but not to that alone.
            info = await self._control.get(sandbox_id, op="pause")
            if info.state is not SandboxState.PAUSED:
                raise


class _Network(NetworkControl):
    """The protocol's update has no inbound switch; sandboxd's has (`inbound_update`)."""

    def __init__(self, wire: WireClient, *, inbound_update: bool) -> None:
        self._control = wire.control
        self._service = wire.settings.service
        self._inbound_update = inbound_update

    async def update(self, sandbox_id: str, policy: NetworkPolicy) -> None:
        body = network_update(policy)
        if self._inbound_update:
            body["allowPublicTraffic"] = policy.inbound
        else:
            await self._require_same_inbound(sandbox_id, policy)
        await self._control.set_network(sandbox_id, body)

    async def _require_same_inbound(self, sandbox_id: str, policy: NetworkPolicy) -> None:
        detail = await self._control.detail(sandbox_id, op="update network")
        current = (detail.get("network") or {}).get("allowPublicTraffic")
        if current is not None and current != policy.inbound:
            raise Unsupported(
                "The inbound switch of a running sandbox cannot be changed at "
                f"{self._service.place}; start a new sandbox with the new policy.",
                provider=self._service.provider,
                op="update network",
            )


class _Terminals(TerminalAccess):
    def __init__(self, wire: WireClient) -> None:
        self._processes = wire.processes

    def open(
        self,
        sandbox: Sandbox,
        *,
        cols: int = 80,
        rows: int = 24,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str = DEFAULT_USER,
    ) -> AbstractAsyncContextManager[Terminal]:
        return self._processes.terminal(sandbox, cols=cols, rows=rows, cwd=cwd, env=env, user=user)
