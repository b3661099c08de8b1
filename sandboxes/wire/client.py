"""A client of the E2B protocol: both planes of one account, put together.

Backends differ in where the planes are, which routes the server has and what its envd knows; all of
that is in `WireSettings`. The contract itself is implemented by the backends on top.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx

from sandboxes.wire.bodies import Routes
from sandboxes.wire.control import ControlPlane
from sandboxes.wire.envd import Addressing, Envd
from sandboxes.wire.failures import Service
from sandboxes.wire.files import EnvdFiles
from sandboxes.wire.messages import API_KEY_HEADER, ENVD_VERSION
from sandboxes.wire.processes import Processes
from sandboxes.wire.rest import REQUEST_TIMEOUT_S
from sandboxes.wire.terminals import EnvdTerminals
from sandboxes.wire.transport import CONTROL_HEADERS, DATA_HEADERS, Dial, Plane

__all__ = ["WireClient", "WireSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WireSettings:
    """One account at one server.

    `api_url` may have a path; over a unix socket its host is only a name. `extra_headers` go with
    every control call, for gateways that want some, and must be named here to pass the allow-list.
    """

    service: Service
    api_url: str
    api_key: str = field(default="", repr=False)
    addressing: Addressing
    control_dial: Dial = field(default_factory=Dial)
    data_dial: Dial = field(default_factory=Dial)
    routes: Routes = "v2"
    control: type[ControlPlane] = ControlPlane
    request_timeout_s: float = REQUEST_TIMEOUT_S
    lost_codes: frozenset[int] = frozenset()
    """Codes by which the proxy in front of envd says that it doesn't know a sandbox."""
    envd_version: str = ENVD_VERSION
    send_traffic_token: bool = False
    extra_headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class WireClient:
    """Belongs to one event loop. `transport` replaces the network of both planes in tests."""

    def __init__(
        self, settings: WireSettings, *, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self.settings = settings
        key = {API_KEY_HEADER: settings.api_key} if settings.api_key else {}
        self._control_plane = Plane(
            settings.service,
            base_url=settings.api_url,
            transport=transport or settings.control_dial.transport(tls=_tls(settings.api_url)),
            headers={**key, **settings.extra_headers},
            allowed_headers=CONTROL_HEADERS | {name.lower() for name in settings.extra_headers},
        )
        data_url = settings.addressing.shared_url or settings.addressing.host_template
        self._data_plane = Plane(
            settings.service,
            transport=transport or settings.data_dial.transport(tls=_tls(data_url)),
            allowed_headers=DATA_HEADERS,
        )
        self.control = settings.control(
            self._control_plane,
            routes=settings.routes,
            request_timeout_s=settings.request_timeout_s,
        )
        self.envd = Envd(
            self._data_plane,
            settings.addressing,
            look_up=self.control.get,
            envd_version=settings.envd_version,
            send_traffic_token=settings.send_traffic_token,
            lost_codes=settings.lost_codes,
        )
        self.processes = Processes(self.envd)
        self.files = EnvdFiles(self.envd)
        self.terminals = EnvdTerminals(self.envd)

    async def drop_idle(self) -> None:
        """Close the data plane's connections that wait for their next request."""
        await self._data_plane.drop_idle()

    async def aclose(self) -> None:
        await self._control_plane.aclose()
        await self._data_plane.aclose()


def _tls(url: str) -> bool:
    return not url.startswith("http://")
