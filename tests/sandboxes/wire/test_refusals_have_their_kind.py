"""Every answer that is no success: its kind, its sentence, and that only the protocol can say gone."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable

import httpx
import pytest

from sandboxes.backends.e2b import E2BClient
from sandboxes.errors import (
    Authentication,
    Capacity,
    Conflict,
    InvalidRequest,
    NotFound,
    SandboxError,
    Terminal,
    TimedOut,
    Unavailable,
)
from sandboxes.network import CLOSED
from sandboxes.types import CreateRequest, TimeoutPolicy
from tests.sandboxes.wire import servers
from tests.sandboxes.wire.servers import BOX

CREATE = CreateRequest(template="base", network=CLOSED, timeout=TimeoutPolicy(timeout_s=60))

Call = Callable[[E2BClient], Awaitable[object]]

CALLS: dict[str, Call] = {
    "create": lambda client: client.create(CREATE),
    "connect": lambda client: client.connect("abc123"),
    "get": lambda client: client.get("abc123"),
    "delete": lambda client: client.delete("abc123"),
}


async def failure(answer: httpx.Response | Exception, call: Call) -> SandboxError:
    def handler(request: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with servers.client(handler) as client:
        with pytest.raises(SandboxError) as caught:
            await call(client)
    error = caught.value
    assert error.provider == "e2b"
    assert error.op
    assert str(error).endswith(".")
    assert str(error)[0].isupper()
    return error


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequest),
        (401, Authentication),
        (403, Authentication),
        (408, TimedOut),
        (409, Conflict),
        (410, Terminal),
        (422, InvalidRequest),
        (429, Capacity),
        (500, Unavailable),
        (503, Unavailable),
        (504, TimedOut),
        (507, Capacity),
    ],
)
async def test_statuses(status: int, kind: type[SandboxError], call: Call) -> None:
    error = await failure(servers.refusal(status, "a text of theirs"), call)
    assert type(error) is kind
    assert error.status == status
    assert "of theirs" not in str(error)
    assert "of theirs" in error.detail


async def test_404_is_gone_but_for_create() -> None:
    for name, call in CALLS.items():
        error = await failure(servers.refusal(404, "not found"), call)
        assert type(error) is (InvalidRequest if name == "create" else NotFound)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(404, text="404 page not found"),
        httpx.Response(404, text="<html><h1>Not Found</h1></html>"),
        httpx.Response(404, json={"detail": "Not Found"}),
        httpx.Response(404, json={"message": "no Route matched with those values"}),
        httpx.Response(404, json=[]),
        httpx.Response(410, text=""),
        httpx.Response(405, text=""),
        httpx.Response(301, headers={"location": "https://elsewhere.test/"}),
    ],
)
async def test_a_proxy_that_answers_for_everything_proves_nothing(
    answer: httpx.Response, call: Call
) -> None:
    error = await failure(answer, call)
    assert type(error) is Unavailable
    assert "check the address" in str(error)


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, text="<html>sign in</html>"),
        httpx.Response(200, text=""),
        httpx.Response(200, json=[]),
        httpx.Response(200, json={"sandboxID": 5}),
        httpx.Response(201, text='{"sandboxID": "a'),
    ],
)
async def test_a_success_that_is_none(answer: httpx.Response) -> None:
    for name in ("create", "connect", "get"):
        assert type(await failure(answer, CALLS[name])) is Unavailable


def tls_failure() -> httpx.ConnectError:
    error = httpx.ConnectError("certificate verify failed")
    error.__cause__ = ssl.SSLCertVerificationError("self-signed certificate")
    return error


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (httpx.ConnectError("refused"), Unavailable, "check the network"),
        (httpx.ConnectTimeout("slow"), Unavailable, "check the network"),
        (tls_failure(), Unavailable, "CA"),
        (httpx.ReadTimeout("silent"), TimedOut, "outcome"),
        (httpx.ReadError("reset"), Unavailable, "check the network"),
        (httpx.RemoteProtocolError("closed"), Unavailable, "check the network"),
        (httpx.UnsupportedProtocol("ftp"), InvalidRequest, "https://"),
    ],
)
async def test_faults_on_the_way(fault: Exception, kind: type[SandboxError], words: str) -> None:
    for call in CALLS.values():
        error = await failure(fault, call)
        assert type(error) is kind
        assert words in str(error)


async def test_retry_after_is_passed_on() -> None:
    answer = servers.refusal(429, "slow down")
    answer.headers["retry-after"] = "7"
    assert (await failure(answer, CALLS["get"])).retry_after_s == 7.0


async def test_nothing_but_a_get_is_sent_again() -> None:
    seen: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request.method)
        raise httpx.RemoteProtocolError("Server disconnected without sending a response.")

    async with servers.client(handler) as client:
        for name, times in (("create", 1), ("connect", 1), ("delete", 1), ("get", 2)):
            seen.clear()
            with pytest.raises(Unavailable):
                await CALLS[name](client)
            assert len(seen) == times, name


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (servers.refusal(404, "file not found"), NotFound),
        (servers.refusal(400, "is a directory"), InvalidRequest),
        (servers.refusal(401, "unknown user 'x'"), InvalidRequest),
        (servers.refusal(401, "unauthorized access, please provide a valid token"), Authentication),
        (servers.refusal(507, "disk full"), Capacity),
        (httpx.Response(404, text="404 page not found"), Unavailable),
        (httpx.Response(502, text="<html>"), Unavailable),
    ],
)
async def test_file_transfers(answer: httpx.Response, kind: type[SandboxError]) -> None:
    async def read(client: E2BClient) -> None:
        assert client.files is not None
        async with client.files.read(BOX, "/tmp/x"):
            pass

    async def write(client: E2BClient) -> None:
        assert client.files is not None
        await client.files.write(BOX, "/tmp/x", b"data")

    assert type(await failure(answer, read)) is kind
    assert type(await failure(answer, write)) is kind


async def test_a_download_cut_short_is_unavailable() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        broken = httpx.RemoteProtocolError("peer closed connection")
        return httpx.Response(200, stream=servers.Pieces([b"half", broken]))

    async with servers.client(handler) as client:
        assert client.files is not None
        with pytest.raises(Unavailable):
            async with client.files.read(BOX, "/tmp/x") as chunks:
                assert [chunk async for chunk in chunks]
