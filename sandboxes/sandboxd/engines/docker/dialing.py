"""aiohttp's own connector, with a say in which address of an engine a connection goes to.

What is dialled is one of the very addresses that were judged, also where a redirect leads and where the URL
holds a plain address; the name that TLS checks stays the URL's.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

import aiohttp
from aiohttp.abc import ResolveResult

from sandboxes.errors import Unavailable
from sandboxes.urlguard import UrlGuard

__all__ = ["GuardedConnector"]


class GuardedConnector(aiohttp.TCPConnector):
    """Raises UrlRefused for an address that may not be called."""

    def __init__(self, guard: UrlGuard, **options: Any) -> None:
        super().__init__(**options)
        if not hasattr(aiohttp.TCPConnector, "_resolve_host"):  # pragma: no cover
            raise RuntimeError("this version of aiohttp resolves elsewhere")
        self._guard = guard

    async def _resolve_host(
        self, host: str, port: int, traces: Sequence[Any] | None = None
    ) -> list[ResolveResult]:
        # aiohttp asks its resolver for names only, and has no parameter for judging plain addresses.
        try:
            addresses = await self._guard.addresses(host, port)
        except Unavailable as error:
            raise OSError(error.detail or error.message) from error
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]
