"""The settings of an account at E2B or a compatible server, and opening it."""

from __future__ import annotations

from dataclasses import dataclass

from sandboxes.backends import fields
from sandboxes.backends.e2b.client import E2BClient
from sandboxes.client import SandboxClient
from sandboxes.registry import setting
from sandboxes.wire.client import WireSettings
from sandboxes.wire.envd import Addressing
from sandboxes.wire.failures import Service
from sandboxes.words import gettext_noop as _

__all__ = ["Settings", "open_client"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    api_key: str = setting(
        label=_("API key"),
        help=_("The account's key. It stays here: no sandbox ever sees it."),
        secret=True,
        identity=True,
    )
    api_url: str = setting(
        label=_("API URL"),
        help=_("Leave empty for https://api.DOMAIN."),
        identity=True,
        place=True,
        default="",
    )
    domain: str = setting(
        label=_("Domain"),
        help=_("Sandboxes are reached under it."),
        identity=True,
        place=True,
        default="e2b.app",
    )
    sandbox_url: str = setting(
        label=_("Sandbox URL"),
        help=_("One URL for the data plane of all sandboxes. Leave empty for a host name each."),
        identity=True,
        default="",
    )
    template: str = fields.template()
    ca_pem: str = fields.ca_pem()
    allow_private: bool = fields.allow_private()

    def urls(self) -> tuple[str, ...]:
        """What is dialled, for the guard to judge before it is saved."""
        return tuple(filter(None, (self.control_url, self.sandbox_url)))

    @property
    def control_url(self) -> str:
        return (self.api_url or f"https://api.{self.domain}").rstrip("/")


async def open_client(settings: Settings) -> SandboxClient:
    """Asks the server once, which routes it has and whether it is a sandboxd."""
    api_url = settings.control_url
    dial = fields.guarded_dial(
        settings.urls(), ca_pem=settings.ca_pem, allow_private=settings.allow_private
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
