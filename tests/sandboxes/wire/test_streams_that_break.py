"""What an exec says when its stream ends in any other way than it should."""

from __future__ import annotations

import base64
from collections.abc import Callable

import httpx
import pytest

from sandboxes.errors import (
    Authentication,
    Conflict,
    Internal,
    InvalidRequest,
    NotFound,
    SandboxError,
    Unavailable,
)
from sandboxes.types import ExecRequest
from sandboxes.wire.connect import Code, ConnectError, encode_message
from tests.sandboxes.wire import servers
from tests.sandboxes.wire.servers import BOX, END, START, event, stream

RUN = ExecRequest(argv=("true",))
OUT = event(data={"stdout": base64.b64encode(b"hello").decode()})


def serve(
    start: Callable[[], httpx.Response],
    *,
    health: httpx.Response | None = None,
    detail: httpx.Response | None = None,
    seen: list[str] | None = None,
) -> Callable[[httpx.Request], httpx.Response]:
    """Start answers as told; the rest of the server is well, or as told."""

    def handler(request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if seen is not None:
            seen.append(path)
        if path == "/process.Process/Start":
            return start()
        if path == "/health":
            return health or httpx.Response(204)
        if path.startswith("/sandboxes/"):
            return detail or servers.refusal(404, "gone")
        if path.startswith("/process.Process/"):
            return httpx.Response(200, json={})
        raise AssertionError(path)

    return handler


async def run(handler: Callable[[httpx.Request], httpx.Response]) -> object:
    async with servers.client(handler) as client:
        return await client.run(BOX, RUN)


async def failure(handler: Callable[[httpx.Request], httpx.Response]) -> SandboxError:
    with pytest.raises(SandboxError) as caught:
        await run(handler)
    assert caught.value.provider == "e2b"
    assert caught.value.op == "exec"
    assert str(caught.value).endswith(".")
    assert str(caught.value)[0].isupper()
    return caught.value


async def test_frames_may_be_cut_anywhere() -> None:
    whole = START + OUT + event(end={"exited": True, "status": "exit status 0"}) + END
    pieces = [whole[index : index + 1] for index in range(len(whole))]
    async with servers.client(serve(lambda: stream(*pieces))) as client:
        result = await client.run(BOX, RUN)
    assert (result.stdout, result.exit_code) == (b"hello", 0)


async def test_keepalives_are_no_events() -> None:
    end = event(end={"exitCode": 3, "exited": True})
    async with servers.client(
        serve(lambda: stream(event(keepalive={}), START, event(keepalive={}), OUT, end, END))
    ) as client:
        result = await client.run(BOX, RUN)
    assert (result.stdout, result.exit_code) == (b"hello", 3)


async def test_a_cut_stream_of_a_live_sandbox_is_unavailable() -> None:
    for pieces in ([START], [START, OUT], [START, OUT[:9]], [START, httpx.ReadError("reset")]):
        error = await failure(serve(lambda pieces=pieces: stream(*pieces)))  # type: ignore[misc]
        assert type(error) is Unavailable
        assert not error.gone


async def test_an_end_without_the_commands_end_is_unavailable() -> None:
    assert type(await failure(serve(lambda: stream(START, OUT, END)))) is Unavailable


async def test_a_broken_stream_is_killed() -> None:
    seen: list[str] = []
    await failure(serve(lambda: stream(START, httpx.ReadError("reset")), seen=seen))
    assert "/process.Process/SendSignal" in seen


async def test_gone_needs_the_word_of_both_planes() -> None:
    error = await failure(
        serve(
            lambda: stream(START, OUT),
            health=servers.not_found_502(),
            detail=servers.refusal(404, "no such sandbox"),
        )
    )
    assert type(error) is NotFound


@pytest.mark.parametrize(
    ("detail", "kind"),
    [
        (httpx.Response(404, text="<html>404</html>"), Unavailable),
        (httpx.Response(503, text="busy"), Unavailable),
        (servers.refusal(401, "bad key"), Unavailable),
        (httpx.Response(200, json={"sandboxID": "abc123", "state": "running"}), Unavailable),
        (httpx.Response(200, json={"sandboxID": "abc123", "state": "paused"}), Conflict),
        (httpx.Response(200, json={"sandboxID": "abc123", "state": "pausing"}), Conflict),
    ],
)
async def test_the_proxys_not_found_alone_costs_no_binding(
    detail: httpx.Response, kind: type[SandboxError]
) -> None:
    error = await failure(
        serve(lambda: stream(START), health=servers.not_found_502(), detail=detail)
    )
    assert type(error) is kind
    assert not error.gone


async def test_a_closed_envd_port_is_unavailable() -> None:
    closed = servers.refusal(502, "The sandbox is running but port is not open")
    assert type(await failure(serve(lambda: closed))) is Unavailable


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        (Code.INVALID_ARGUMENT, "cwd '/no' does not exist", InvalidRequest),
        (Code.UNAUTHENTICATED, "invalid username: 'nobody'", InvalidRequest),
        (Code.UNAUTHENTICATED, "unauthorized access, please provide a valid token", Authentication),
        (Code.INTERNAL, "boom", Internal),
        (Code.UNKNOWN, "boom", Internal),
    ],
)
async def test_end_stream_errors_have_their_kind(
    code: Code, message: str, kind: type[SandboxError]
) -> None:
    error = await failure(serve(lambda: stream(servers.end_with(ConnectError(code, message)))))
    assert type(error) is kind
    assert message not in str(error), "a provider's text is for the log"
    assert message in error.detail


async def test_an_unavailable_end_is_looked_into() -> None:
    gone = ConnectError(Code.UNAVAILABLE, "sandbox is gone")
    error = await failure(
        serve(lambda: stream(START, servers.end_with(gone)), health=servers.not_found_502())
    )
    assert type(error) is NotFound


@pytest.mark.parametrize(
    "answer",
    [
        lambda: httpx.Response(200, text="<html>login</html>"),
        lambda: httpx.Response(200, json={"event": {}}),
        lambda: httpx.Response(404, text="404 page not found"),
        lambda: httpx.Response(302, headers={"location": "https://elsewhere.test/"}),
        lambda: httpx.Response(502, text="<html>bad gateway</html>"),
        lambda: httpx.Response(503, text=""),
    ],
)
async def test_what_is_no_stream_is_unavailable(answer: Callable[[], httpx.Response]) -> None:
    assert type(await failure(serve(answer))) is Unavailable


@pytest.mark.parametrize(
    "first",
    [event(data={"stdout": "aGk="}), event(start={}), encode_message({"nonsense": 1})],
)
async def test_a_stream_that_starts_wrong_is_internal(first: bytes) -> None:
    assert type(await failure(serve(lambda: stream(first, END)))) is Internal


async def test_garbage_in_a_frame_is_an_error_not_a_crash() -> None:
    error = await failure(serve(lambda: stream(START, b"\x00\x00\x00\x00\x03abc")))
    assert not error.gone


async def test_what_could_not_be_killed_is_not_reported_as_killed() -> None:
    overran = ConnectError(Code.DEADLINE_EXCEEDED, "too long")

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/Start"):
            return stream(START, servers.Slow(0.2), servers.end_with(overran))
        if request.url.path.startswith("/sandboxes/"):
            return httpx.Response(200, json={"sandboxID": "abc123", "state": "paused"})
        return servers.not_found_502()

    async with servers.client(handler) as client:
        with pytest.raises(Conflict, match="paused"):
            await client.run(BOX, ExecRequest(argv=("true",), timeout_s=0.1))


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("signal: killed", 137),
        ("signal: terminated", 143),
        ("signal: segmentation fault (core dumped)", 139),
        ("signal: Segmentation fault", 139),
        ("signal: signal 34", 162),
    ],
)
async def test_a_signal_is_128_and_more(status: str, code: int) -> None:
    end = event(end={"exitCode": -1, "exited": False, "status": status})
    async with servers.client(serve(lambda: stream(START, end, END))) as client:
        result = await client.run(BOX, RUN)
    assert (result.exit_code, result.killed) == (code, False)
