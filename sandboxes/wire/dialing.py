"""httpx's own transport, with a say in which address a connection goes to.

A name is resolved here, once a connection; each address is judged, and one of the judged addresses is
dialled. The URL is left alone, so Host and the name that TLS checks stay what the settings say.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Any

import httpcore
import httpx

from sandboxes.errors import Unavailable
from sandboxes.urlguard import UrlGuard

__all__ = ["GuardedTransport"]


class GuardedTransport(httpx.AsyncHTTPTransport):
    """`guard=None` leaves resolving and connecting to the system."""

    def __init__(
        self,
        *,
        guard: UrlGuard | None,
        uds: str | None,
        verify: ssl.SSLContext | bool,
        trust_env: bool,
        limits: httpx.Limits,
        retries: int,
    ) -> None:
        super().__init__(
            uds=uds, verify=verify, trust_env=trust_env, limits=limits, retries=retries
        )
        if not isinstance(getattr(self, "_pool", None), httpcore.AsyncConnectionPool):
            raise RuntimeError(
                "this version of httpx keeps its connections elsewhere"
            )  # pragma: no cover
        if guard is not None:
            # httpx has no parameter for it; everything else is as it would make the pool itself.
            self._pool: httpcore.AsyncConnectionPool = httpcore.AsyncConnectionPool(
                ssl_context=verify if isinstance(verify, ssl.SSLContext) else None,
                max_connections=limits.max_connections,
                max_keepalive_connections=limits.max_keepalive_connections,
                keepalive_expiry=limits.keepalive_expiry,
                retries=retries,
                network_backend=_GuardedBackend(guard),
            )

    async def drop_idle(self) -> None:
        """Close the connections that wait for their next request; those in use go on."""
        for connection in self._pool.connections:
            if connection.is_idle():
                await connection.aclose()


class _GuardedBackend(httpcore.AsyncNetworkBackend):
    def __init__(self, guard: UrlGuard) -> None:
        self._guard = guard
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            addresses = await self._guard.addresses(host, port)
        except Unavailable as error:
            raise httpcore.ConnectError(error.detail) from error
        failure: Exception | None = None
        for address in addresses:
            try:
                return await self._inner.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        assert failure is not None  # noqa: S101 - there is at least one address
        raise failure

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)
