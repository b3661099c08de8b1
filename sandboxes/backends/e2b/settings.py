"""The settings of an account at E2B or a compatible server, and opening it."""

from __future__ import annotations

from dataclasses import dataclass

from sandboxes.backends.e2b.client import E2BClient
from sandboxes.client import SandboxClient
from sandboxes.registry import setting
from sandboxes.urlguard import UrlGuard, check_url
from sandboxes.wire.client import WireSettings
from sandboxes.wire.envd import Addressing
from sandboxes.wire.failures import Service
from sandboxes.wire.transport import Dial

__all__ = ["Settings", "open_client"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    api_key: str = setting(label="API key", secret=True, identity=True)
    api_url: str = setting(
        label="API URL",
        help="Leave empty for https://api.DOMAIN.",
        identity=True,
        place=True,
        default="",
    )
    domain: str = setting(
        label="Domain",
        help="Sandboxes are reached under it.",
        identity=True,
        place=True,
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
