"""A Cube cluster's settings, and opening it: one probe of what its version has."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from sandboxes.backends import fields
from sandboxes.backends.cube.client import CAPABILITIES, CubeClient
from sandboxes.backends.cube.control import CubeControl, Features
from sandboxes.backends.cube.failures import LOST_CODES
from sandboxes.capabilities import Capabilities
from sandboxes.client import SandboxClient
from sandboxes.errors import InvalidRequest
from sandboxes.registry import setting
from sandboxes.wire.client import WireClient, WireSettings
from sandboxes.wire.envd import Addressing
from sandboxes.wire.failures import Service
from sandboxes.words import gettext_noop as _

__all__ = ["Settings", "open_client"]

# Old envds take uploads as multipart only, newer ones both; what a cluster reports is often a fallback.
_ENVD_VERSION = "0.2.0"
_DNS_NOTE = (
    "A closed sandbox of Cube {version} may still ask a DNS server, by which data can get out; the "
    "verification says whether it does."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    api_url: str = setting(
        label=_("API URL"),
        help=_("CubeAPI, such as https://cube.example.com:3000."),
        identity=True,
        place=True,
    )
    proxy_url: str = setting(
        label=_("Proxy URL"),
        help=_("CubeProxy, which leads to the sandboxes. It is dialled whatever the DNS says."),
        identity=True,
    )
    sandbox_domain: str = setting(
        label=_("Sandbox domain"),
        help=_("The proxy knows sandboxes by host names under it."),
        identity=True,
        default="cube.app",
    )
    api_key: str = fields.optional_api_key(_("Leave empty if the cluster asks for none."))
    template: str = fields.template()
    dns_servers: str = setting(
        label=_("DNS servers"),
        help=_(
            "Addresses that sandboxes resolve names at, one a line. While only listed names may be "
            "reached, these are let through, or no name could be."
        ),
        multiline=True,
        default="",
    )
    http_timeout_s: float = setting(
        label=_("Time limit of a call"),
        help=_("In seconds. The cluster's own limit is 30."),
        minimum=1,
        default=35.0,
    )
    ca_pem: str = fields.ca_pem()
    allow_private: bool = fields.allow_private()

    def urls(self) -> tuple[str, ...]:
        """What is dialled, for the guard to judge before it is saved."""
        return (self.api_url, self.proxy_url)

    def resolvers(self) -> tuple[str, ...]:
        """The DNS servers as CIDR blocks. InvalidRequest for what is no IPv4 address."""
        try:
            return tuple(
                str(ipaddress.IPv4Network(word))
                for word in self.dns_servers.replace(",", " ").split()
            )
        except ValueError:
            raise InvalidRequest(
                "The DNS servers must be IPv4 addresses, one a line, such as 203.0.113.53."
            ) from None


async def open_client(settings: Settings) -> SandboxClient:
    """Asks the cluster once what its version has; creates nothing."""
    wire = wire_settings(settings)
    client = WireClient(wire)
    try:
        control = client.control
        assert isinstance(control, CubeControl)  # noqa: S101 - as the settings say
        features = await control.features()
    finally:
        await client.aclose()
    return CubeClient(
        wire,
        capabilities_of(features),
        features=features,
        resolvers=settings.resolvers(),
    )


def capabilities_of(features: Features) -> Capabilities:
    """What a cluster of that version can do, and what it must not be trusted with."""
    notes = {"outbound_switch": _DNS_NOTE.format(version=features.version), **CAPABILITIES.notes}
    if features.network_update:
        return replace(CAPABILITIES, notes=notes)
    note = f"Cube {features.version} cannot change a running sandbox's policy; 0.7 can."
    return replace(CAPABILITIES, network_update=False, notes={**notes, "network_update": note})


def wire_settings(settings: Settings) -> WireSettings:
    """Raises InvalidRequest for a URL that may not be called."""
    dial = fields.guarded_dial(
        settings.urls(), ca_pem=settings.ca_pem, allow_private=settings.allow_private
    )
    proxy = urlsplit(settings.proxy_url)
    port = proxy.port or (443 if proxy.scheme == "https" else 80)
    host = f"[{proxy.hostname}]" if ":" in (proxy.hostname or "") else proxy.hostname
    api_url = settings.api_url.rstrip("/")
    return WireSettings(
        service=Service(
            provider="cube",
            place=f"the Cube cluster at {api_url}",
            mend="check the API URL, the proxy URL and the network in between",
        ),
        api_url=api_url,
        api_key=settings.api_key,
        addressing=Addressing(
            host_template=f"{proxy.scheme}://{{port}}-{{id}}.{{domain}}",
            domain=settings.sandbox_domain,
            proxy_url=settings.proxy_url.rstrip("/"),
        ),
        control_dial=dial,
        data_dial=replace(dial, address=f"{host}:{port}"),
        routes="v1",  # 0.8 has them still
        control=CubeControl,
        request_timeout_s=settings.http_timeout_s,
        lost_codes=LOST_CODES,
        envd_version=_ENVD_VERSION,
        send_traffic_token=True,  # envd's port is closed by it too
    )
