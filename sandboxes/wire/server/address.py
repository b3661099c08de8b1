"""Which sandbox and port a request names: by the headers E2b-Sandbox-Id and E2b-Sandbox-Port, or by
the host name `{port}-{id}.{domain}`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from starlette.datastructures import Headers

from sandboxes.errors import InvalidRequest
from sandboxes.wire.messages import SANDBOX_ID_HEADER, SANDBOX_PORT_HEADER

__all__ = ["ENVD_PATHS", "Address", "locate", "meant_for_envd"]

_HOST = re.compile(r"(\d{1,5})-([a-z0-9]+)\.([^:]+)", re.ASCII)
_ID = re.compile(r"[a-z0-9]{1,63}", re.ASCII)
_ENVD_PREFIXES = ("/process.Process/", "/filesystem.Filesystem/")
ENVD_PATHS = ("/health", "/files", "/files/compose", "/envs", "/metrics")


@dataclass(frozen=True, slots=True)
class Address:
    """`port` was parsed once: every later decision uses this number."""

    sandbox_id: str
    port: int


def locate(headers: Headers, *, domain: str | None = None) -> Address | None:
    """None if it names none. InvalidRequest for half an address or a broken one. With a `domain`, only
    host names under it count."""
    sandbox_id = headers.get(SANDBOX_ID_HEADER)
    port = headers.get(SANDBOX_PORT_HEADER)
    if sandbox_id is None and port is None:
        match = _HOST.match(headers.get("host", "").lower())
        if match is None or domain not in (None, match[3]):
            return None
        return Address(match[2], _port(match[1]))
    if sandbox_id is None or port is None:
        missing = SANDBOX_ID_HEADER if sandbox_id is None else SANDBOX_PORT_HEADER
        raise InvalidRequest(f"missing header {missing}")
    if not _ID.fullmatch(sandbox_id):
        raise InvalidRequest("A sandbox id has lower-case letters and digits only")
    return Address(sandbox_id, _port(port))


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 5 or not 0 < int(text) < 65536:
        raise InvalidRequest("A port is a number from 1 to 65535")
    return int(text)


def meant_for_envd(path: str) -> bool:
    """A path of the data plane, on a request that may lack its address."""
    return path in ENVD_PATHS or path.startswith(_ENVD_PREFIXES)
