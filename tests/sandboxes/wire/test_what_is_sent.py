"""Requests, byte by byte: routes, bodies, headers, and what never travels where."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from sandboxes.backends.e2b import E2BClient
from sandboxes.errors import InvalidRequest, Unsupported
from sandboxes.network import CLOSED, OPEN, NetworkPolicy
from sandboxes.types import (
    CreateRequest,
    ExecRequest,
    ListFilter,
    OnTimeout,
    Sandbox,
    SandboxState,
    TimeoutPolicy,
)
from sandboxes.wire.envd import Addressing
from sandboxes.wire.messages import SandboxReply
from sandboxes.wire.transport import DATA_HEADERS, Dial, Plane
from tests.sandboxes.wire import servers
from tests.sandboxes.wire.servers import API_KEY, BOX, END, START, body_of, event, stream

REPLY: SandboxReply = {
    "templateID": "base",
    "sandboxID": "abc123",
    "clientID": "x",
    "envdVersion": "0.6.4",
    "envdAccessToken": "data-token",
    "trafficAccessToken": None,
    "domain": None,
}
EXITED = event(end={"exited": True, "status": "exit status 0"})


class Recorder:
    def __init__(self, *answers: httpx.Response) -> None:
        self.requests: list[httpx.Request] = []
        self._answers = list(answers)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    @property
    def last(self) -> httpx.Request:
        return self.requests[-1]


def request(network: NetworkPolicy = CLOSED, **timeout: object) -> CreateRequest:
    policy = TimeoutPolicy(timeout_s=59.2, **timeout)  # type: ignore[arg-type]
    return CreateRequest(
        template="base", network=network, timeout=policy, metadata={"a": "b"}, env={"E": "1"}
    )


@pytest.mark.parametrize(
    ("network", "internet", "public", "allow", "deny"),
    [
        (OPEN, True, False, [], []),
        (CLOSED, False, False, [], ["0.0.0.0/0"]),
        (NetworkPolicy(outbound=True, inbound=True), True, True, [], []),
        (
            NetworkPolicy.parse(outbound=False, inbound=False, allow=["example.com", "192.0.2.1"]),
            False,
            False,
            ["192.0.2.1/32", "example.com"],
            ["0.0.0.0/0"],
        ),
        (
            NetworkPolicy.parse(
                outbound=True, inbound=False, allow=["example.com"], deny=["0.0.0.0/0"]
            ),
            False,
            False,
            ["example.com"],
            ["0.0.0.0/0"],
        ),
        (
            NetworkPolicy.parse(outbound=True, inbound=False, deny=["192.0.2.0/24"]),
            True,
            False,
            [],
            ["192.0.2.0/24"],
        ),
    ],
)
async def test_both_network_switches_are_always_sent(
    network: NetworkPolicy, internet: bool, public: bool, allow: list[str], deny: list[str]
) -> None:
    recorder = Recorder(httpx.Response(201, json=REPLY))
    async with servers.client(recorder) as client:
        await client.create(request(network))
    body = body_of(recorder.last)
    assert body["allow_internet_access"] is internet
    assert body["network"] == {"allowPublicTraffic": public, "allowOut": allow, "denyOut": deny}


@pytest.mark.parametrize(("routes", "prefix"), [("v2", "/v2"), ("v1", "")])
async def test_routes_of_both_versions(routes: str, prefix: str) -> None:
    recorder = Recorder(httpx.Response(201, json=REPLY))
    async with servers.client(recorder, routes=routes) as client:
        await client.create(request(on_timeout=OnTimeout.PAUSE, auto_resume=True))
        create = recorder.last
        await client.connect("abc123")
    assert create.url.path == f"{prefix}/sandboxes"
    assert recorder.last.url.path == f"{prefix}/sandboxes/abc123/connect"
    body = body_of(create)
    assert (body["timeout"], body["autoPause"], body["autoResume"]) == (60, True, {"enabled": True})
    assert ("secure" in body) is (routes == "v1")
    assert ("timeout" in body_of(recorder.last)) is (routes == "v1")


async def test_the_key_goes_to_the_control_plane_alone() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if request.url.path == "/process.Process/Start":
            return stream(START, EXITED, END)
        if request.url.host.startswith("api."):
            return httpx.Response(201, json=REPLY)
        return httpx.Response(200, json={"entry": {"path": "/x", "name": "x"}})

    seen: list[httpx.Request] = []
    async with servers.client(handler) as client:
        box = await client.create(request())
        await client.run(box, ExecRequest(argv=("true",)))
        assert client.files is not None
        await client.files.stat(box, "/x")
    control = [r for r in seen if r.url.host == "api.example.test"]
    data = [r for r in seen if r.url.host == "data.example.test"]
    assert len(control) + len(data) == len(seen)
    for sent in control:
        assert sent.headers["x-api-key"] == API_KEY
        assert "x-access-token" not in sent.headers
    for sent in data:
        assert API_KEY not in str(sent.headers.raw)
        assert sent.headers["x-access-token"] == "data-token"
        assert sent.headers["e2b-sandbox-id"] == "abc123"
        assert sent.headers["e2b-sandbox-port"] == "49983"


async def test_headers_that_a_plane_does_not_name_are_dropped() -> None:
    recorder = Recorder(httpx.Response(204))
    plane = Plane(
        servers.settings().service,
        transport=servers.Scripted(recorder),
        allowed_headers=DATA_HEADERS,
        headers={"X-API-Key": API_KEY, "Cookie": "a=b"},
    )
    async with plane:
        await plane.request("x", "GET", "https://data.example.test/", timeout_s=5)
    assert "x-api-key" not in recorder.last.headers
    assert "cookie" not in recorder.last.headers


async def test_exec_on_the_wire() -> None:
    recorder = Recorder(stream(START, EXITED, END))
    async with servers.client(recorder) as client:
        await client.run(
            BOX, ExecRequest(argv=("echo", "a b"), env={"A": "b"}, cwd="/tmp", user="root")
        )
    sent = recorder.requests[0]
    assert sent.headers["content-type"] == "application/connect+json"
    assert sent.headers["connect-protocol-version"] == "1"
    assert sent.headers["connect-timeout-ms"] == "60000"
    assert sent.headers["keepalive-ping-interval"] == "50"
    assert sent.headers["accept-encoding"] == "identity"
    assert sent.headers["authorization"] == "Basic cm9vdDo="
    flags, length = sent.content[0], int.from_bytes(sent.content[1:5], "big")
    assert (flags, length) == (0, len(sent.content) - 5)
    message = httpx.Response(200, content=sent.content[5:]).json()
    assert message["process"] == {"cmd": "echo", "args": ["a b"], "envs": {"A": "b"}, "cwd": "/tmp"}
    assert message["stdin"] is False
    assert len(recorder.requests) == 1, "nothing to kill after an ordinary end"


async def test_no_deadline_sends_no_timeout() -> None:
    recorder = Recorder(stream(START, EXITED, END))
    async with servers.client(recorder) as client:
        await client.run(BOX, ExecRequest(argv=("true",), timeout_s=None))
    assert "connect-timeout-ms" not in recorder.requests[0].headers


async def test_a_server_that_forgets_the_deadline_is_overruled() -> None:
    class Silent(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield START
            await asyncio.sleep(30)

    killed: list[object] = []

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/Start"):
            return httpx.Response(
                200, headers={"content-type": "application/connect+json"}, stream=Silent()
            )
        killed.append(body_of(request))
        return httpx.Response(200, json={})

    async with servers.client(handler) as client:
        async with asyncio.timeout(3):
            result = await client.run(BOX, ExecRequest(argv=("true",), timeout_s=0.2))
    assert (result.killed, result.exit_code) == (True, 137)
    assert killed == [{"process": {"pid": 7}, "signal": "SIGNAL_SIGKILL"}]


async def test_list_filters_and_follows_pages() -> None:
    def item(number: int, **more: object) -> dict[str, object]:
        return {"sandboxID": f"s{number}", "templateID": "t", "state": "running", **more}

    first = httpx.Response(200, json=[item(1), item(2)], headers={"x-next-token": "two"})
    second = httpx.Response(200, json=[item(2), item(3)])
    recorder = Recorder(first, second)
    states = frozenset({SandboxState.RUNNING, SandboxState.PAUSED})
    async with servers.client(recorder) as client:
        found = [info.id async for info in client.list(ListFilter(states=states))]
    assert found == ["s1", "s2", "s3"]
    assert dict(recorder.requests[0].url.params) == {"limit": "100", "state": "paused,running"}
    assert recorder.requests[1].url.params["nextToken"] == "two"


@pytest.mark.parametrize("token", ["again", ""])
async def test_pages_that_never_end_end(token: str) -> None:
    page = [{"sandboxID": "s1", "templateID": "t", "state": "running"}]
    recorder = Recorder(httpx.Response(200, json=page, headers={"x-next-token": token}))
    async with servers.client(recorder) as client:
        assert [info.id async for info in client.list(ListFilter())] == ["s1"]
    assert len(recorder.requests) <= 2


async def test_pages_with_ever_new_tokens_but_nothing_new_end() -> None:
    sent: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        page = [{"snapshotID": "snap-1", "names": ["n"]}]
        return httpx.Response(200, json=page, headers={"x-next-token": f"t{len(sent)}"})

    async with servers.client(handler) as client:
        assert client.snapshots is not None
        assert [info.id async for info in client.snapshots.list()] == ["snap-1"]
    assert len(sent) == 2


async def test_a_server_that_ignores_filters_is_filtered_here() -> None:
    page = [
        {"sandboxID": "s1", "templateID": "t", "state": "running", "metadata": {"a": "b"}},
        {"sandboxID": "s2", "templateID": "t", "state": "paused", "metadata": {"a": "b"}},
        {"sandboxID": "s3", "templateID": "t", "state": "running"},
        {"sandboxID": "s4", "templateID": "t", "state": "weird", "metadata": {"a": "b"}},
    ]
    recorder = Recorder(httpx.Response(200, json=page))
    async with servers.client(recorder) as client:
        wanted = ListFilter(metadata={"a": "b"}, states=frozenset({SandboxState.RUNNING}))
        assert [info.id async for info in client.list(wanted)] == ["s1"]
        every = [info.state async for info in client.list(ListFilter(metadata={"a": "b"}))]
    assert every[-1] is SandboxState.UNKNOWN


async def test_metadata_is_encoded_in_three_layers() -> None:
    recorder = Recorder(httpx.Response(200, json=[]))
    async with servers.client(recorder) as client:
        assert [i async for i in client.list(ListFilter(metadata={"a b": "x/y", "k": "v&w"}))] == []
    assert b"metadata=a%252520b%3Dx%252Fy%26k%3Dv%252526w" in recorder.last.url.raw_path


async def test_template_ids_are_one_quoted_segment() -> None:
    recorder = Recorder(httpx.Response(204))
    async with servers.client(recorder) as client:
        assert client.snapshots is not None
        await client.snapshots.delete("team/x:default")
    assert recorder.last.url.raw_path == b"/templates/team%2Fx%3Adefault"


@pytest.mark.parametrize("odd", ["", "..", "a/b", "a?b", "ä", "-x", " x"])
async def test_odd_ids_are_never_sent(odd: str) -> None:
    recorder = Recorder(httpx.Response(204))
    async with servers.client(recorder) as client:
        with pytest.raises(InvalidRequest):
            await client.delete(odd)
    assert recorder.requests == []


async def test_a_network_update_does_not_touch_inbound() -> None:
    detail = {"sandboxID": "abc123", "state": "running", "network": {"allowPublicTraffic": False}}
    recorder = Recorder(httpx.Response(200, json=detail))
    async with servers.client(recorder) as client:
        assert client.network is not None
        await client.network.update("abc123", CLOSED)
        assert body_of(recorder.last) == {
            "allow_internet_access": False,
            "allowOut": [],
            "denyOut": ["0.0.0.0/0"],
        }
        with pytest.raises(Unsupported):
            await client.network.update("abc123", NetworkPolicy(outbound=True, inbound=True))


@pytest.mark.parametrize(("version", "kind"), [("0.6.4", "octet-stream"), ("0.4.0", "form-data")])
async def test_uploads_suit_the_envd(version: str, kind: str) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"some "
        yield b"data"

    recorder = Recorder(httpx.Response(200, json=[{"name": "x", "path": "/x", "type": "file"}]))
    async with servers.client(recorder, envd_version=version) as client:
        assert client.files is not None
        await client.files.write(BOX, "/tmp/ü x", pieces())
    assert kind in recorder.last.headers["content-type"]
    assert recorder.last.url.params["path"] == "/tmp/ü x"
    assert recorder.last.url.params["username"] == "user"
    content = recorder.last.content
    if kind == "octet-stream":
        assert content == b"some data"
    else:
        boundary = recorder.last.headers["content-type"].split("boundary=")[1].encode()
        assert content.startswith(b"--" + boundary + b"\r\n")
        assert b'name="file"' in content
        assert content.endswith(b"\r\n\r\nsome data\r\n--" + boundary + b"--\r\n")


def test_addresses_of_sandboxes() -> None:
    own = Sandbox(id="abc", template_id="t", domain="boxes.example.test")
    hosts = Addressing(domain="elsewhere.test")
    assert hosts.envd(own).url == "https://49983-abc.boxes.example.test"
    assert hosts.endpoint(own, 8080).url == "https://8080-abc.boxes.example.test"
    cloud = Addressing(domain="e2b.app")
    box = Sandbox(id="abc", template_id="t")
    assert cloud.envd(box).url == "https://sandbox.e2b.app"
    assert cloud.endpoint(box, 8080).url == "https://8080-abc.e2b.app"
    shared = Addressing(shared_url="http://x", socket_path="/s").endpoint(own, 1)
    assert (shared.url, shared.socket_path) == ("http://x", "/s")
    assert shared.headers == {"E2b-Sandbox-Id": "abc", "E2b-Sandbox-Port": "1"}


async def test_a_pinned_address_keeps_host_and_tls_name() -> None:
    recorder = Recorder(httpx.Response(204))
    from sandboxes.wire.transport import _Pinned

    pinned = _Pinned(servers.Scripted(recorder), "192.0.2.7:8443")
    async with httpx.AsyncClient(transport=pinned) as http:
        await http.get("https://49983-abc.example.test/health")
    sent = recorder.last
    assert (sent.url.host, sent.url.port) == ("192.0.2.7", 8443)
    assert sent.headers["host"] == "49983-abc.example.test"
    assert sent.extensions["sni_hostname"] == "49983-abc.example.test"
    assert Dial(address="192.0.2.7:8443").transport(tls=True)


class TestOpening:
    async def open(self, handler: object) -> E2BClient:
        transport = servers.Scripted(handler)  # type: ignore[arg-type]
        return await E2BClient.open(servers.settings(), transport=transport)

    async def test_a_sandboxd_says_what_it_can(self) -> None:
        def handler(request: httpx.Request) -> httpx.Response:
            assert request.url.path == "/sandboxd/engine"
            return httpx.Response(
                200,
                json={"engine": "x", "capabilities": {"files": True}, "notes": {"pause": "no"}},
            )

        async with await self.open(handler) as client:
            assert client.capabilities.names() == ("files",)
            assert client.capabilities.notes == {"pause": "no"}
            assert client.pausing is None

    @pytest.mark.parametrize(("status", "prefix"), [(400, "/v2"), (405, ""), (404, "")])
    async def test_other_servers_are_asked_for_their_routes(self, status: int, prefix: str) -> None:
        def handler(request: httpx.Request) -> httpx.Response:
            if request.url.path == "/sandboxd/engine":
                return httpx.Response(404, text="404 page not found")
            if request.url.path == "/v2/sandboxes" and body_of(request) == {}:
                return servers.refusal(status, "no")
            assert request.url.path == f"{prefix}/sandboxes"
            return httpx.Response(201, json=REPLY)

        async with await self.open(handler) as client:
            assert client.capabilities.snapshots
            await client.create(request())


def test_secrets_stay_out_of_sight() -> None:
    assert API_KEY not in repr(servers.settings())
