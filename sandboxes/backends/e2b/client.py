"""The contract over the E2B protocol, for every server that speaks it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import fields, replace
from typing import Any

import httpx

from sandboxes.backends.e2b.images import Snapshots, Templates
from sandboxes.capabilities import Capabilities
from sandboxes.client import (
    InboundAccess,
    NetworkControl,
    Pausing,
    ProtocolAccess,
    SandboxClient,
    SnapshotStore,
    TemplateCatalog,
    TerminalAccess,
)
from sandboxes.errors import Conflict, SandboxError, Unsupported
from sandboxes.network import NetworkPolicy
from sandboxes.types import (
    CreateRequest,
    Endpoint,
    ExecEvent,
    ExecRequest,
    ListFilter,
    Sandbox,
    SandboxInfo,
    SandboxState,
)
from sandboxes.wire.bodies import Routes, network_update
from sandboxes.wire.client import WireClient, WireSettings
from sandboxes.wire.files import EnvdFiles
from sandboxes.wire.messages import GATEWAY_ENGINE
from sandboxes.wire.protocol import WireProtocol
from sandboxes.words import gettext_noop as _

__all__ = ["E2B_CAPABILITIES", "E2BClient"]

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
        "private_ranges_closed": _(
            "The protocol promises nothing of it; the verification says what was seen."
        ),
        "template_builds": _("Templates are built with E2B's command line or SDK."),
        "network_update": _(
            "The inbound switch of a running sandbox cannot be changed; outbound can."
        ),
    },
)


class E2BClient(SandboxClient):
    """The contract over the E2B protocol. `sandboxd` builds templates too, and `inbound_update` can move the
    inbound switch of what runs; `transport` replaces the network in tests."""

    def __init__(
        self,
        settings: WireSettings,
        capabilities: Capabilities,
        *,
        sandboxd: bool = False,
        inbound_update: bool = False,
        account_id: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.provider = settings.service.provider
        self.capabilities = capabilities
        self.account_id = account_id
        self._wire = WireClient(settings, transport=transport)
        self._snapshots = Snapshots(self._wire)
        self._templates = Templates(
            self._wire, with_snapshots=capabilities.snapshots, sandboxd=sandboxd
        )
        self._inbound = _Inbound(self._wire)
        self._pausing = _Pausing(self._wire)
        self._network = _Network(self._wire, inbound_update=inbound_update)
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
            sandboxd=engine is not None and engine.get("engine") != GATEWAY_ENGINE,
            inbound_update=engine is not None,
            account_id=None if engine is None else engine.get("id"),
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
        return self._wire.terminals if self.capabilities.terminal else None

    @property
    def protocol(self) -> ProtocolAccess | None:
        return self._protocol


async def _engine(wire: WireClient, *, required: bool) -> Mapping[str, Any] | None:
    """What sandboxd says of itself, or a gateway of what is behind it; None from any other server."""
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
