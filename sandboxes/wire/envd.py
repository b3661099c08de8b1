"""The data plane: how one sandbox's envd is addressed, asked and, if it falls silent, judged.

`processes` and `files` are built on this. Only the sandbox's own token travels here, never the
account's API key.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from sandboxes.errors import (
    Authentication,
    Conflict,
    Internal,
    NotFound,
    SandboxError,
    Terminal,
    Unavailable,
)
from sandboxes.types import Endpoint, Sandbox, SandboxInfo, SandboxState
from sandboxes.wire import failures
from sandboxes.wire.connect import (
    STREAM_CONTENT_TYPE,
    Code,
    ConnectError,
    Frame,
    FrameDecoder,
    encode_message,
)
from sandboxes.wire.encoding import encode_user_selector
from sandboxes.wire.messages import (
    ACCESS_TOKEN_HEADER,
    ENVD_PORT,
    ENVD_VERSION,
    SANDBOX_ID_HEADER,
    SANDBOX_PORT_HEADER,
    TRAFFIC_TOKEN_HEADER,
)
from sandboxes.wire.transport import Answer, Plane, read_capped

__all__ = ["Addressing", "Envd", "FrameStream"]

CALL_TIMEOUT_S = 60.0
_PROBE_TIMEOUT_S = 5.0
_KEEPALIVE_INTERVAL_S = 50

# E2B's own domains serve every sandbox's envd from one host that goes by the headers alone.
_SHARED_HOST_DOMAINS = frozenset({"e2b.app", "e2b.dev", "e2b.pro"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Addressing:
    """Where a sandbox's ports are found.

    `shared_url` serves them all and goes by the headers; without it, `host_template` has a host for
    each. `domain` stands in where the server names none for a sandbox. `socket_path` is the unix
    socket behind the URL, if there is one; `proxy_url` is what serves those hosts where no DNS leads
    to it, so that others who dial a port are given that URL and the Host header.
    """

    shared_url: str | None = None
    host_template: str = "https://{port}-{id}.{domain}"
    domain: str = "e2b.app"
    socket_path: str | None = None
    proxy_url: str | None = None

    def endpoint(self, sandbox: Sandbox, port: int) -> Endpoint:
        if self.proxy_url is not None:
            host = self._own_host(sandbox, port).partition("://")[2]
            return Endpoint(url=self.proxy_url, headers={"Host": host})
        return Endpoint(
            url=self.shared_url or self._own_host(sandbox, port),
            headers={SANDBOX_ID_HEADER: sandbox.id, SANDBOX_PORT_HEADER: str(port)},
            socket_path=self.socket_path,
        )

    def dialled(self, sandbox: Sandbox, port: int) -> Endpoint:
        """The same for whoever dials by the settings' own `Dial`, which knows the proxy: the URL is then the
        host that the proxy goes by."""
        if port == ENVD_PORT:
            return self.envd(sandbox)
        if self.proxy_url is not None:
            return Endpoint(url=self._own_host(sandbox, port))
        return self.endpoint(sandbox, port)

    def envd(self, sandbox: Sandbox) -> Endpoint:
        if self.proxy_url is not None:
            return Endpoint(url=self._own_host(sandbox, ENVD_PORT))
        endpoint = self.endpoint(sandbox, ENVD_PORT)
        domain = sandbox.domain or self.domain
        if self.shared_url is None and domain in _SHARED_HOST_DOMAINS:
            return Endpoint(url=f"https://sandbox.{domain}", headers=endpoint.headers)
        return endpoint

    def _own_host(self, sandbox: Sandbox, port: int) -> str:
        return self.host_template.format(
            port=port, id=sandbox.id, domain=sandbox.domain or self.domain
        )


class Envd:
    """Calls to the envd of any sandbox of one account.

    `look_up` asks the control plane about a sandbox: only its word makes one gone. Older envds know
    less, so `envd_version` says what to send.
    """

    def __init__(
        self,
        plane: Plane,
        addressing: Addressing,
        *,
        look_up: Callable[[str], Awaitable[SandboxInfo]],
        envd_version: str = ENVD_VERSION,
        send_traffic_token: bool = False,
        lost_codes: frozenset[int] = frozenset(),
    ) -> None:
        self.plane = plane
        self.addressing = addressing
        self.version = tuple(int(part) for part in envd_version.split("."))
        self._look_up = look_up
        self._send_traffic_token = send_traffic_token
        self._lost_codes = lost_codes

    @property
    def service(self) -> failures.Service:
        return self.plane.service

    def url(self, sandbox: Sandbox, path: str) -> str:
        return f"{self.addressing.envd(sandbox).url.rstrip('/')}/{path}"

    def headers(self, sandbox: Sandbox, *, user: str | None = None) -> dict[str, str]:
        headers = dict(self.addressing.envd(sandbox).headers)
        if sandbox.access_token:
            headers[ACCESS_TOKEN_HEADER] = sandbox.access_token
        if self._send_traffic_token and sandbox.traffic_token:
            headers[TRAFFIC_TOKEN_HEADER] = sandbox.traffic_token
        if user is not None:
            headers["Authorization"] = encode_user_selector(user)
        return headers

    async def call(
        self,
        op: str,
        sandbox: Sandbox,
        method: str,
        message: Mapping[str, Any],
        *,
        user: str | None = None,
        about: str = "",
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> dict[str, Any]:
        """One unary Connect call, such as `filesystem.Filesystem/Stat`."""
        answer = await self.plane.request(
            op,
            "POST",
            self.url(sandbox, method),
            json=message,
            headers={**self.headers(sandbox, user=user), "Connect-Protocol-Version": "1"},
            timeout_s=timeout_s,
        )
        if not answer.ok:
            raise await self.refusal(op, sandbox, answer, about=about)
        try:
            reply = json.loads(answer.body)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            raise failures.not_the_protocol(self.service, op, answer.status, answer.body)
        return reply

    @asynccontextmanager
    async def open_stream(
        self,
        op: str,
        sandbox: Sandbox,
        method: str,
        message: Mapping[str, Any],
        *,
        user: str | None = None,
        timeout_s: float | None = None,
    ) -> AsyncIterator[FrameStream]:
        """A server stream. `timeout_s` is the server's own deadline for it, and is left out for
        none: zero or less would hang a real envd."""
        headers = {
            **self.headers(sandbox, user=user),
            "Content-Type": STREAM_CONTENT_TYPE,
            "Connect-Protocol-Version": "1",
            "Keepalive-Ping-Interval": str(_KEEPALIVE_INTERVAL_S),
        }
        if timeout_s is not None:
            headers["Connect-Timeout-Ms"] = str(max(1, round(timeout_s * 1000)))
        async with self.plane.stream(
            op,
            "POST",
            self.url(sandbox, method),
            content=encode_message(message),
            headers=headers,
            answer_within_s=CALL_TIMEOUT_S,
        ) as response:
            framed = response.headers.get("content-type", "").startswith(STREAM_CONTENT_TYPE)
            if response.status_code != httpx.codes.OK or not framed:
                raise await self.refusal(op, sandbox, await self.whole(op, response))
            yield FrameStream(response)

    async def whole(self, op: str, response: httpx.Response) -> Answer:
        """The body of a streamed answer that turned out to be a refusal."""
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT_S):
                body = await read_capped(response)
        except (httpx.HTTPError, TimeoutError):
            body = b""
        return Answer(status=response.status_code, headers=response.headers, body=body)

    async def refusal(
        self, op: str, sandbox: Sandbox, answer: Answer, *, about: str = ""
    ) -> SandboxError:
        """The error behind an answer that is no success. Never raises."""
        error = failures.protocol_error(answer.body)
        if error is not None and isinstance(error["code"], str):
            return await self.failure(op, sandbox, ConnectError.from_json(error), about=about)
        if answer.status == httpx.codes.BAD_GATEWAY and error is not None:
            return await self._judge_502(op, sandbox, error["message"])
        if error is not None and error["code"] in self._lost_codes:
            return await self._judge(op, sandbox, answer.status, error["message"])
        if answer.status == httpx.codes.FORBIDDEN and self._send_traffic_token:
            return self._closed(op, sandbox, answer)
        if answer.ok:
            return failures.not_the_protocol(self.service, op, answer.status, answer.body)
        if answer.status == httpx.codes.UNAUTHORIZED and error is not None:
            refused = ConnectError(Code.UNAUTHENTICATED, error["message"])
            return failures.from_connect(self.service, op, refused, about=about)
        return failures.from_answer(
            self.service, op, answer.status, answer.headers, answer.body, about=about
        )

    async def failure(
        self, op: str, sandbox: Sandbox, error: ConnectError, *, about: str = ""
    ) -> SandboxError:
        """The error behind a Connect error. A sandbox that is `unavailable` is looked for."""
        if error.code is Code.UNAVAILABLE:
            return await self.lost(op, sandbox, error.message)
        return failures.from_connect(self.service, op, error, about=about or "such file or process")

    async def lost(self, op: str, sandbox: Sandbox, detail: str) -> SandboxError:
        """What became of a sandbox whose stream broke or that does not answer. Never raises."""
        try:
            answer = await self.plane.request(
                op,
                "GET",
                self.url(sandbox, "health"),
                headers=self.headers(sandbox),
                timeout_s=_PROBE_TIMEOUT_S,
            )
        except SandboxError:
            return self._unreachable(op, sandbox, detail)
        error = failures.protocol_error(answer.body)
        if answer.status == httpx.codes.BAD_GATEWAY and error is not None:
            return await self._judge_502(op, sandbox, error["message"])
        if error is not None and error["code"] in self._lost_codes:
            return await self._judge(op, sandbox, answer.status, error["message"])
        return self._unreachable(op, sandbox, f"{detail}; then /health said {answer.status}")

    async def probe(self, op: str, sandbox: Sandbox, *, timeout_s: float) -> Answer:
        """What /health answers, whatever it is."""
        return await self.plane.request(
            op,
            "GET",
            self.url(sandbox, "health"),
            headers=self.headers(sandbox),
            timeout_s=timeout_s,
        )

    async def _judge_502(self, op: str, sandbox: Sandbox, message: str) -> SandboxError:
        """The proxy before envd says that it found no sandbox, or no envd in it. It says the same
        of a paused one, so the control plane has the last word."""
        if "was not found" not in message:
            return self._unreachable(op, sandbox, message)
        return await self._judge(op, sandbox, httpx.codes.BAD_GATEWAY, message)

    async def _judge(self, op: str, sandbox: Sandbox, status: int, message: str) -> SandboxError:
        try:
            info = await self._look_up(sandbox.id)
        except (NotFound, Terminal) as error:
            kind = type(error)
            return failures.make(
                kind, self.service, op, about=f"sandbox {sandbox.id}", status=status, detail=message
            )
        except SandboxError as error:
            return self._unreachable(op, sandbox, f"{message}; then {error.kind}: {error.detail}")
        if info.state is SandboxState.TERMINAL:
            return failures.make(
                Terminal, self.service, op, about=f"sandbox {sandbox.id}", detail=message
            )
        if info.state in (SandboxState.PAUSED, SandboxState.TRANSITIONING):
            return Conflict(
                f"The sandbox {sandbox.id} is {info.raw_state}; connect to it first to wake it.",
                provider=self.service.provider,
                op=op,
                status=status,
                detail=message,
            )
        return self._unreachable(op, sandbox, message)

    def _closed(self, op: str, sandbox: Sandbox, answer: Answer) -> SandboxError:
        return Authentication(
            f"The sandbox {sandbox.id} takes no call without its traffic token, and ours is lost or "
            "wrong; destroy the session's sandbox to start anew.",
            provider=self.service.provider,
            op=op,
            status=answer.status,
            detail=answer.body[:200].decode(errors="replace"),
        )

    def _unreachable(self, op: str, sandbox: Sandbox, detail: str) -> SandboxError:
        return Unavailable(
            f"The sandbox {sandbox.id} cannot be reached just now, and whether {op} was carried "
            "out is unknown; try again in a moment.",
            provider=self.service.provider,
            op=op,
            detail=detail,
        )

    def odd(self, op: str, message: object) -> SandboxError:
        """A message that the protocol does not allow here."""
        return failures.make(Internal, self.service, op, detail=f"unexpected message: {message!r}")


class FrameStream:
    """The frames of a running stream."""

    def __init__(self, response: httpx.Response) -> None:
        self._chunks = response.aiter_raw()
        self._decoder = FrameDecoder()
        self._ready: deque[Frame] = deque()

    async def next(self, *, by: float | None) -> Frame | None:
        """The next frame, or None if the stream was cut off before one that ends it.

        Raises TimeoutError at `by` (in the loop's time), after which the stream is of no more use;
        httpx errors if it breaks; ConnectError for a broken frame.
        """
        while not self._ready:
            async with asyncio.timeout_at(by):
                chunk = await anext(self._chunks, None)
            if chunk is None:
                return None
            self._ready.extend(self._decoder.feed(chunk))
        return self._ready.popleft()

    async def finish(self, *, within_s: float) -> None:
        """Read on to the end, so that the connection can be used again. Errors don't matter."""
        loop = asyncio.get_running_loop()
        try:
            while await self.next(by=loop.time() + within_s) is not None:
                pass
        except (httpx.HTTPError, ConnectError, TimeoutError):
            return
