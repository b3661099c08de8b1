"""The `docker` backend: a sandboxd whose engine is Docker, over its unix socket or over the network.

Only that sandboxd speaks with Docker; its address and TLS files are settings of its command line.
"""

from __future__ import annotations

from dataclasses import dataclass

from sandboxes.backends import fields
from sandboxes.backends.e2b import E2BClient
from sandboxes.backends.local import open_socket
from sandboxes.client import SandboxClient
from sandboxes.errors import InvalidRequest
from sandboxes.registry import setting
from sandboxes.wire.client import WireSettings
from sandboxes.wire.envd import Addressing
from sandboxes.wire.failures import Service
from sandboxes.words import gettext_noop as _

__all__ = ["DEFAULT_SOCKET", "Settings", "open_client"]

DEFAULT_SOCKET = "/run/skillyard/sandboxd-docker.sock"
_MEND = "start it with “python -m sandboxes.sandboxd serve --engine docker”"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    socket: str = setting(
        label=_("Socket"),
        help=_(
            "Path of sandboxd's unix socket. Leave empty for the usual one, or if a URL is set."
        ),
        identity=True,
        place=True,
        default="",
    )
    url: str = setting(
        label=_("URL"),
        help=_("Of a sandboxd on another machine, instead of the socket."),
        identity=True,
        place=True,
        default="",
    )
    api_key: str = fields.optional_api_key(_("That sandboxd's key."))
    ca_pem: str = fields.ca_pem()
    allow_private: bool = fields.allow_private()

    def urls(self) -> tuple[str, ...]:
        """What is dialled, for the guard to judge before it is saved."""
        return (self.url,) if self.url else ()


async def open_client(settings: Settings) -> SandboxClient:
    """Unavailable, with the mend, if no sandboxd answers there."""
    if not settings.url:
        path = settings.socket or DEFAULT_SOCKET
        return await open_socket(path, provider="docker", mend=_MEND)
    if settings.socket:
        raise InvalidRequest("Give either the socket or the URL of sandboxd, not both.")
    url = settings.url.rstrip("/")
    dial = fields.guarded_dial(
        settings.urls(), ca_pem=settings.ca_pem, allow_private=settings.allow_private
    )
    wire = WireSettings(
        service=Service(
            provider="docker", place=f"sandboxd at {url}", mend=_MEND, own_sentences=True
        ),
        api_url=url,
        api_key=settings.api_key,
        addressing=Addressing(shared_url=url),
        control_dial=dial,
        data_dial=dial,
    )
    return await E2BClient.open(wire, sandboxd_only=True)
