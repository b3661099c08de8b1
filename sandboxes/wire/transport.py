"""How requests leave this process: connections, header allow-lists, time and size caps.

One plane is one server for one purpose. The control plane carries the API key, the data plane never
does: each plane lets through only the headers it names, whatever a caller adds. Proxies of the
environment and redirects are ignored, so a request goes where the settings say or nowhere.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx

from sandboxes.errors import InvalidRequest, SandboxError
from sandboxes.urlguard import UrlGuard
from sandboxes.wire.dialing import GuardedTransport
from sandboxes.wire.failures import Service, from_transport, timed_out

__all__ = [
    "CONNECT_TIMEOUT_S",
    "CONTROL_HEADERS",
    "DATA_HEADERS",
    "Answer",
    "Dial",
    "Plane",
    "tls_context",
]

_HTTP_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "host",
        "transfer-encoding",
        "user-agent",
    }
)
CONTROL_HEADERS = _HTTP_HEADERS | {"x-api-key", "idempotency-key"}
DATA_HEADERS = _HTTP_HEADERS | {
    "authorization",  # selects the user inside the sandbox; no credential
    "connect-accept-encoding",
    "connect-content-encoding",
    "connect-protocol-version",
    "connect-timeout-ms",
    "e2b-sandbox-id",
    "e2b-sandbox-port",
    "e2b-traffic-access-token",
    "keepalive-ping-interval",
    "x-access-token",
}

CONNECT_TIMEOUT_S = 5.0
MAX_BODY_BYTES = 32 * 1024 * 1024
# Below the keep-alive of the servers that we know, so that a request hardly ever meets a connection
# that is being closed: a POST that does is not sent again.
_KEEPALIVE_S = 15.0
_MAX_IDLE_CONNECTIONS = 32

_DROPPED = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dial:
    """Where the bytes go. Without any of these: to the URL's own host, trusting the system's CAs.

    `socket_path` is a unix socket; `address` (`host:port`) is dialled in place of the URL's host,
    which stays the Host header and the name that TLS checks: for gateways without wildcard DNS.
    `ca_pem` is trusted besides the system's CAs. `guard` judges every address that is dialled.
    """

    socket_path: str | None = None
    address: str | None = None
    ca_pem: str | None = None
    guard: UrlGuard | None = None

    def transport(self, *, tls: bool) -> httpx.AsyncBaseTransport:
        """`tls=False` skips loading the CAs, which takes longer than a whole local call."""
        transport = GuardedTransport(
            guard=self.guard,
            uds=self.socket_path,
            verify=tls_context(self.ca_pem) if tls else False,
            trust_env=False,
            limits=httpx.Limits(
                max_connections=None,
                max_keepalive_connections=_MAX_IDLE_CONNECTIONS,
                keepalive_expiry=_KEEPALIVE_S,
            ),
            # Of connecting only, so nothing is ever sent twice.
            retries=0 if self.socket_path else 1,
        )
        return _Pinned(transport, self.address) if self.address else transport


@functools.lru_cache(maxsize=64)
def tls_context(ca_pem: str | None) -> ssl.SSLContext:
    """Kept, because reading the CAs takes longer than many a call. Raises InvalidRequest for a text
    that is no certificate."""
    context = httpx.create_ssl_context(trust_env=False)
    context.load_default_certs()
    if ca_pem:
        try:
            context.load_verify_locations(cadata=ca_pem)
        except ssl.SSLError as error:
            raise InvalidRequest(
                "The CA certificate cannot be read; paste its PEM text, from BEGIN to END.",
                op="open",
                detail=str(error),
            ) from error
    return context


class _Pinned(httpx.AsyncBaseTransport):
    """Dials one address; Host and the TLS name stay those of the URL."""

    def __init__(self, inner: GuardedTransport, address: str) -> None:
        self._inner = inner
        self._target = httpx.URL(f"//{address}")

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.extensions = {**request.extensions, "sni_hostname": request.url.host}
        request.url = request.url.copy_with(
            host=self._target.host, port=self._target.port or request.url.port
        )
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def drop_idle(self) -> None:
        await self._inner.drop_idle()


class Plane:
    """HTTP to one server. Every method raises only SandboxError."""

    def __init__(
        self,
        service: Service,
        *,
        transport: httpx.AsyncBaseTransport,
        allowed_headers: frozenset[str],
        base_url: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.service = service
        self._allowed = allowed_headers
        self._transport = transport
        self._http = httpx.AsyncClient(
            transport=transport,
            base_url=base_url,
            headers={"User-Agent": "skillyard", "Accept-Encoding": "identity", **(headers or {})},
            follow_redirects=False,
            trust_env=False,
            event_hooks={"request": [self._keep_allowed_headers]},
        )

    async def _keep_allowed_headers(self, request: httpx.Request) -> None:
        for name in [name for name in request.headers if name not in self._allowed]:
            del request.headers[name]

    async def request(
        self,
        op: str,
        method: str,
        url: str,
        *,
        timeout_s: float,
        json: Any = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """The whole answer, of any status. `timeout_s` bounds all of it, slow drips included.

        Only a GET is sent again, once, if the connection breaks before it is answered.
        """
        attempts = 2 if method == "GET" else 1
        for attempt in range(1, attempts + 1):
            try:
                async with asyncio.timeout(timeout_s):
                    request = self._http.build_request(
                        method,
                        url,
                        json=json,
                        params=params,
                        headers=headers,
                        timeout=httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S),
                    )
                    response = await self._http.send(request, stream=True)
                    try:
                        body = await read_capped(response)
                    finally:
                        await response.aclose()
            except _DROPPED as error:
                if attempt == attempts:
                    raise from_transport(self.service, op, error) from error
            except TimeoutError as error:
                raise timed_out(self.service, op) from error
            except SandboxError as error:
                raise self._named(op, error) from error.__cause__
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise from_transport(self.service, op, error) from error
            else:
                return Answer(status=response.status_code, headers=response.headers, body=body)
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def stream(
        self,
        op: str,
        method: str,
        url: str,
        *,
        answer_within_s: float | None,
        content: bytes | AsyncIterable[bytes] | None = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        idle_s: float | None = None,
    ) -> AsyncIterator[httpx.Response]:
        """An answer whose body the caller reads. `answer_within_s` bounds the wait for its head,
        `idle_s` any single read or write; None leaves that to the caller's own deadline."""
        request = self._http.build_request(
            method,
            url,
            content=content,
            params=params,
            headers=headers,
            timeout=httpx.Timeout(idle_s, connect=CONNECT_TIMEOUT_S),
        )
        try:
            async with asyncio.timeout(answer_within_s):
                response = await self._http.send(request, stream=True)
        except TimeoutError as error:
            raise timed_out(self.service, op) from error
        except SandboxError as error:
            raise self._named(op, error) from error.__cause__
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise from_transport(self.service, op, error) from error
        try:
            yield response
        finally:
            await response.aclose()

    def _named(self, op: str, error: SandboxError) -> SandboxError:
        """The guard's refusal, which knows neither whom it guarded nor for what."""
        error.provider, error.op = error.provider or self.service.provider, error.op or op
        return error

    async def drop_idle(self) -> None:
        """Close the connections that wait for their next request; those in use go on."""
        drop = getattr(self._transport, "drop_idle", None)
        if drop is not None:
            await drop()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


async def read_capped(response: httpx.Response, limit: int = MAX_BODY_BYTES) -> bytes:
    """The body, if it is no longer than `limit` bytes."""
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > limit:
            raise httpx.DecodingError(f"an answer of more than {limit} bytes")
    return bytes(body)
