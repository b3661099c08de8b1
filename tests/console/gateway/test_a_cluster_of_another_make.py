"""The same client in front of a Cube cluster: other bodies, other routes, no tokens of its own for envd, and a
proxy that goes by host names. Nothing of that reaches the client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from e2b import PtySize, Sandbox, SandboxQuery, SandboxState

from tests.console.api.server import Server, start
from tests.console.gateway.conftest import DOMAIN
from tests.console.gateway.replicas import manage
from tests.console.gateway.test_official_sdk import eventually
from tests.console.gateway.test_preview import APP, SIGN_IN
from tests.sandboxes import daemon as daemons
from tests.sandboxes.backends import fake_cube
from tests.sandboxes.backends.fake_cube import FakeCube

pytestmark = pytest.mark.sandbox

Options = dict[str, Any]


@pytest.fixture(scope="module")
def cube(daemon: daemons.Daemon) -> Iterator[FakeCube]:
    with fake_cube.start(daemon.socket) as fake:
        yield fake


@pytest.fixture(scope="module")
def console(
    cube: FakeCube,
    daemon: daemons.Daemon,
    redis_socket: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    with start(
        tmp_path_factory.mktemp("console"),
        redis_socket=redis_socket,
        sandboxd_socket=str(daemon.socket),
        TESTED_BACKEND=json.dumps({"provider": "cube", "values": cube.settings()}),
    ) as server:
        yield server


@pytest.fixture
def sandbox(options: Options) -> Iterator[Sandbox]:
    created = Sandbox.create("base", timeout=120, metadata={"suite": "a & b"}, **options)
    yield created
    created.kill()


def test_commands_files_and_terminals(sandbox: Sandbox) -> None:
    result = sandbox.commands.run('echo "$A"; echo oops >&2', envs={"A": "b"})
    assert (result.stdout, result.stderr) == ("b\n", "oops\n")
    sandbox.files.write("d/ü.txt", "text")
    assert sandbox.files.read("d/ü.txt") == "text"
    output = bytearray()
    terminal = sandbox.pty.create(PtySize(rows=24, cols=80))
    sandbox.pty.send_stdin(terminal.pid, b"echo got-$((40+2)); exit\n")
    terminal.wait(on_pty=output.extend)
    assert b"got-42" in output


def test_the_cluster_s_own_ways_stay_hidden(
    sandbox: Sandbox, options: Options, cube: FakeCube
) -> None:
    info = sandbox.get_info()
    assert (info.metadata, info.state) == ({"suite": "a & b"}, SandboxState.RUNNING)
    assert info.end_at > info.started_at
    # The cluster's key and our own words stay here, and its domain is none that leads anywhere.
    assert sandbox.sandbox_domain == DOMAIN
    assert "cube" not in str(vars(info)).lower()
    made = [call for call in cube.control_calls if call.url.path == "/sandboxes"][-1]
    assert json.loads(made._body)["lifecycle"] == {"onTimeout": "kill"}


def test_pausing_by_itself_and_waking(console: Server, options: Options) -> None:
    lifecycle = {"on_timeout": "pause", "auto_resume": True}
    sandbox = Sandbox.create("base", timeout=3, lifecycle=lifecycle, **options)
    try:
        sandbox.files.write("kept", "1")
        eventually(lambda: sandbox.get_info().state is SandboxState.PAUSED)
        # A stranger does not wake it by asking whether it lives.
        there = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983"}
        assert httpx.get(f"{console.url}/health", headers=there).status_code == 401
        assert sandbox.get_info().state is SandboxState.PAUSED
        assert sandbox.files.read("kept") == "1"
        assert sandbox.get_info().state is SandboxState.RUNNING
    finally:
        assert sandbox.kill()


def test_pause_connect_kill(sandbox: Sandbox, options: Options) -> None:
    token = sandbox.traffic_access_token
    assert token
    assert [sandbox.pause(), sandbox.pause(), sandbox.is_running()] == [True, False, False]
    assert sandbox.get_info().state is SandboxState.PAUSED
    again = Sandbox.connect(sandbox.sandbox_id, timeout=100, **options)
    assert again.is_running()
    # The cluster told it once, at create.
    assert again.traffic_access_token == token
    sandbox.set_timeout(60)
    command = sandbox.commands.run("sleep 60", background=True)
    assert sandbox.kill() is True
    with pytest.raises(Exception, match=r"killed|not found"):
        command.wait()
    assert Sandbox.kill(sandbox.sandbox_id, **options) is False
    assert not sandbox.is_running()


def test_the_gateway_asks_for_the_tokens(
    sandbox: Sandbox, console: Server, options: Options
) -> None:
    there = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983"}
    listing = {"path": "/"}
    refused = httpx.post(
        f"{console.url}/filesystem.Filesystem/ListDir", headers=there, json=listing
    )
    assert (refused.status_code, refused.json()["code"]) == (401, 401)
    assert httpx.get(f"{console.url}/health", headers=there).status_code == 204
    wrong = {**there, "X-Access-Token": "x" * 40}
    read = httpx.get(f"{console.url}/files", params={"path": "/etc/hostname"}, headers=wrong)
    assert (read.status_code, read.json()["message"]) == (401, "missing signature query parameter")

    url = sandbox.upload_url("signed.txt")
    assert httpx.post(url, files={"file": ("signed.txt", b"by url")}).status_code == 200
    assert httpx.get(sandbox.download_url("signed.txt")).content == b"by url"

    sandbox.commands.run("python3 -m http.server 8123", background=True, cwd="/etc")
    port = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "8123"}
    token = {"e2b-traffic-access-token": sandbox.traffic_access_token or ""}
    closed = httpx.get(f"{console.url}/hostname", headers=port)
    assert (closed.status_code, closed.json()["sandboxId"]) == (403, sandbox.sandbox_id)
    found = eventually(
        lambda: (
            (r := httpx.get(f"{console.url}/hostname", headers={**port, **token})).status_code
            == 200
            and r
        )
    )
    assert found.text.strip()
    deaf = httpx.get(f"{console.url}/", headers={**port, **token, "E2b-Sandbox-Port": "8124"})
    assert (deaf.status_code, deaf.json()["message"]) == (
        502,
        "The sandbox is running but port is not open",
    )


def test_lists_snapshots_and_templates(sandbox: Sandbox, options: Options, cube: FakeCube) -> None:
    with Sandbox.create("base", timeout=60, metadata={"suite": "a & b"}, **options) as second:
        query = SandboxQuery(metadata={"suite": "a & b"}, state=[SandboxState.RUNNING])
        pages = Sandbox.list(query=query, limit=1, **options)
        ids = [pages.next_items()[0].sandbox_id, pages.next_items()[0].sandbox_id]
        assert ids == [second.sandbox_id, sandbox.sandbox_id]
        assert not pages.has_next
    by_template = Sandbox.list(query=SandboxQuery(template="base"), **options).next_items()
    assert [item.sandbox_id for item in by_template] == [sandbox.sandbox_id]
    assert Sandbox.list(query=SandboxQuery(template="nowhere"), **options).next_items() == []
    sandbox.files.write("kept", "before")
    snapshot = sandbox.create_snapshot(name="mine")
    sandbox.files.write("kept", "after")
    with Sandbox.create("mine", timeout=60, **options) as copy:
        assert copy.files.read("kept") == "before"
    assert Sandbox.delete_snapshot(snapshot.snapshot_id, **options) is True
    assert snapshot.snapshot_id not in cube.cluster.snapshots


def test_network_and_metrics(sandbox: Sandbox) -> None:
    sandbox.update_network({"deny_out": ["8.8.8.8"]})
    with pytest.raises(Exception, match="does not allow"):
        sandbox.update_network({"allow_out": ["10.0.0.1"], "deny_out": ["0.0.0.0/0"]})
    with pytest.raises(Exception, match="keeps no metrics"):
        sandbox.get_metrics()


def test_both_versions_and_what_is_made_elsewhere(console: Server) -> None:
    with httpx.Client(base_url=console.url, headers=console.headers("e2b"), timeout=60) as http:
        made = http.post("/sandboxes", json={"templateID": "base", "timeout": 60, "secure": True})
        path = f"/sandboxes/{made.json()['sandboxID']}"
        assert http.post(f"{path}/pause").status_code == 204
        assert http.post(f"{path}/refreshes", json={"duration": 60}).status_code == 409
        assert http.post(f"{path}/resume", json={"timeout": 60}).status_code == 201
        assert http.post(f"{path}/resume", json={"timeout": 60}).status_code == 409
        assert http.post(f"{path}/refreshes", json={"duration": 60}).status_code == 204
        assert http.get("/templates").json()[0]["buildStatus"] == "ready"
        assert http.delete(path).status_code == 204
        assert http.get(path).status_code == 404

        # Through the REST interface: its traffic token lies with the session.
        session = console.session("rest")
        resolved = httpx.post(
            f"{console.url}{session}/resolve", headers=console.headers(), json={}, timeout=60
        )
        assert resolved.status_code == 200, resolved.text
        [theirs] = http.get("/v2/sandboxes").json()
        assert http.get(f"/sandboxes/{theirs['sandboxID']}").status_code == 200
        # Known, but opened by no client yet: nothing on the data plane is let through.
        unopened = {"E2b-Sandbox-Id": theirs["sandboxID"], "E2b-Sandbox-Port": "49983"}
        assert http.get("/health", headers=unopened).status_code == 502
        there = http.post(f"/v2/sandboxes/{theirs['sandboxID']}/connect").json()
        assert there["envdAccessToken"]
        assert there["trafficAccessToken"]
        answer = http.get(
            "/files",
            params={"path": "/etc/hostname"},
            headers={
                "E2b-Sandbox-Id": theirs["sandboxID"],
                "E2b-Sandbox-Port": "49983",
                "X-Access-Token": there["envdAccessToken"],
            },
        )
        assert answer.status_code == 200, answer.text
        httpx.delete(f"{console.url}{session}", headers=console.headers(), timeout=60)


def test_a_member_looks_at_a_port(
    sandbox: Sandbox, console: Server, daemon: daemons.Daemon, redis_socket: str
) -> None:
    """In the browser, with the traffic token that the console keeps."""
    sandbox.files.write("app.py", APP)
    sandbox.commands.run("python3 app.py", background=True)
    wait = "for i in $(seq 100); do curl -s localhost:8300 && break; sleep 0.1; done"
    assert sandbox.commands.run(wait).stdout
    told = manage(
        "shell",
        "-c",
        SIGN_IN.format(space=console.facts["space"], sandbox=sandbox.sandbox_id),
        folder=console.log.parent,
        redis_socket=redis_socket,
        sandboxd_socket=str(daemon.socket),
    )
    known = dict(line.split()[1:] for line in told.splitlines() if line.startswith("cookie "))
    cookies = {"session": known["operator"]}
    with httpx.Client(base_url=console.url, cookies=cookies, follow_redirects=True) as browser:
        page = browser.get(f"/sessions/{known['row']}/ports/8300/here")
    assert page.status_code == 200
    assert page.text.startswith("/here\n")
    assert (sandbox.traffic_access_token or "") not in page.text
