"""The `local` backend: sandboxd on this machine, over its unix socket.

Whoever may open the socket may use every sandbox behind it; there is no API key.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from sandboxes.backends.e2b import E2BClient
from sandboxes.client import SandboxClient
from sandboxes.errors import Unavailable
from sandboxes.registry import setting
from sandboxes.wire.client import WireSettings
from sandboxes.wire.envd import Addressing
from sandboxes.wire.failures import Service
from sandboxes.wire.transport import Dial
from sandboxes.words import gettext_noop as _

__all__ = ["DEFAULT_SOCKET", "Settings", "open_client", "open_socket"]

DEFAULT_SOCKET = "/run/skillyard/sandboxd.sock"
_SOCKET_VARIABLE = "SKILLYARD_SANDBOXD_SOCKET"
_MEND = "start it with “make up”"
_URL = "http://sandboxd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    socket: str = setting(
        label=_("Socket"),
        help=_("Path of sandboxd's unix socket. Leave empty for the one of this machine."),
        identity=True,
        place=True,
        default="",
    )

    @property
    def socket_path(self) -> str:
        return self.socket or os.environ.get(_SOCKET_VARIABLE) or DEFAULT_SOCKET


async def open_client(settings: Settings) -> SandboxClient:
    """Unavailable, with the mend, if nothing serves the socket or we may not open it."""
    return await open_socket(settings.socket_path, provider="local", mend=_MEND)


async def open_socket(path: str, *, provider: str, mend: str) -> SandboxClient:
    """A sandboxd on a unix socket, whichever its engine. `mend` is how to start it."""
    _check_socket(path, provider, mend)
    wire = WireSettings(
        service=Service(
            provider=provider, place=f"sandboxd at {path}", mend=mend, own_sentences=True
        ),
        api_url=_URL,
        addressing=Addressing(shared_url=_URL, socket_path=path),
        control_dial=Dial(socket_path=path),
        data_dial=Dial(socket_path=path),
    )
    return await E2BClient.open(wire, sandboxd_only=True)


def _check_socket(path: str, provider: str, mend: str) -> None:
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        raise _unavailable(
            f"sandboxd is not running: there is no socket at {path}; {mend}.", provider
        ) from None
    except PermissionError as error:
        raise _not_allowed(path, provider) from error
    if not stat.S_ISSOCK(mode):
        raise _unavailable(f"{path} is not a socket; give the path of sandboxd's socket.", provider)
    if not os.access(path, os.R_OK | os.W_OK):
        raise _not_allowed(path, provider)


def _not_allowed(path: str, provider: str) -> Unavailable:
    return _unavailable(
        f"This account may not open {path}; add it to the group that owns the socket.", provider
    )


def _unavailable(message: str, provider: str) -> Unavailable:
    return Unavailable(message, provider=provider, op="open")
