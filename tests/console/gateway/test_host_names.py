"""`{port}-{id}.{domain}` at the gateway: HTTP, WebSocket, server-sent events and signed URLs by the host name
alone; and what starts from a release by its name."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from e2b import Sandbox
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as websocket

from tests.console.api.server import Server, start
from tests.sandboxes import daemon as daemons

pytestmark = pytest.mark.sandbox

DOMAIN = "ports.test"
PORT = 8300

# A server of the standard library alone: echoes on a WebSocket, and tells its second event once a file is there.
APP = r"""
import base64, hashlib, http.server, os, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if "websocket" in self.headers.get("Upgrade", "").lower():
            key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
            self.send_response(101)
            for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)):
                self.send_header(name, value)
            self.end_headers()
            head = self.rfile.read(2)
            mask = self.rfile.read(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(head[1] & 127)))
            self.wfile.write(bytes([0x81, len(data)]) + data)
            self.close_connection = True
        elif self.path == "/events":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(b"data: one\n\n")
            self.wfile.flush()
            while not os.path.exists("/tmp/go"):
                time.sleep(0.02)
            self.wfile.write(b"data: two\n\n")
            self.close_connection = True
        else:
            body = (self.path + "\n" + str(self.headers)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(201)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8300), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def console(
    daemon: daemons.Daemon, redis_socket: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    with start(
        tmp_path_factory.mktemp("console"),
        redis_socket=redis_socket,
        sandboxd_socket=str(daemon.socket),
        SKILLYARD_GATEWAY_DOMAIN=DOMAIN,
        TESTED_SKILL="1",
    ) as server:
        yield server


@pytest.fixture(scope="module")
def options(console: Server) -> dict[str, Any]:
    """Without a domain: the gateway's answers tell it."""
    return {
        "api_url": console.url,
        "sandbox_url": console.url,
        "api_key": console.facts["keys"]["e2b"],
    }


@pytest.fixture(scope="module")
def served(options: dict[str, Any]) -> Iterator[Sandbox]:
    """A sandbox whose port answers; inbound is closed."""
    with Sandbox.create(timeout=300, **options) as sandbox:
        sandbox.files.write("app.py", APP)
        sandbox.commands.run("python3 app.py", background=True)
        wait = f"for i in $(seq 100); do curl -s localhost:{PORT} && break; sleep 0.1; done"
        assert sandbox.commands.run(wait).stdout
        yield sandbox


def token_of(sandbox: Sandbox) -> dict[str, str]:
    return {"e2b-traffic-access-token": sandbox.traffic_access_token or ""}


def ask(
    console: Server, host: str, path: str = "/", method: str = "GET", **options: Any
) -> httpx.Response:
    headers = {"Host": host, **options.pop("headers", {})}
    return httpx.request(method, f"{console.url}{path}", headers=headers, timeout=30, **options)


def dialled(console: Server, host: str, **headers: str) -> ClientConnection:
    address = urlsplit(console.url)
    stream = socket.create_connection((address.hostname or "", address.port or 0), timeout=20)
    return websocket(f"ws://{host}/chat", sock=stream, additional_headers=headers)


def test_http_goes_to_the_port_of_the_name(console: Server, served: Sandbox) -> None:
    host = served.get_host(PORT)
    assert host == f"{PORT}-{served.sandbox_id}.{DOMAIN}"
    for name in (host, host.upper(), f"{host}:8443"):
        answer = ask(console, name, "/a%20b?q=1", headers=token_of(served))
        assert answer.status_code == 200
        assert answer.text.startswith("/a%20b?q=1\n")
    # The server there sees the name that it was called by, and no token.
    assert f"host: {host}:8443" in answer.text.lower()
    assert token_of(served)["e2b-traffic-access-token"] not in answer.text
    posted = ask(console, host, "/", "POST", headers=token_of(served), content=b"x" * 100_000)
    assert (posted.status_code, len(posted.content)) == (201, 100_000)


def test_the_token_opens_it_and_nothing_else_does(console: Server, served: Sandbox) -> None:
    host = served.get_host(PORT)
    missing = ask(console, host)
    assert (missing.status_code, missing.json()["sandboxId"]) == (403, served.sandbox_id)
    assert "is missing" in missing.json()["message"]
    wrong = ask(console, host, headers={"e2b-traffic-access-token": "x"})
    assert "is invalid" in wrong.json()["message"]
    key = {"X-API-Key": console.facts["keys"]["e2b"]}
    assert ask(console, host, headers=key).status_code == 403
    with pytest.raises(InvalidStatus) as refused:
        dialled(console, host)
    assert refused.value.response.status_code == 403


def test_websockets_and_events_stream(console: Server, served: Sandbox) -> None:
    host = served.get_host(PORT)
    with dialled(console, host, **token_of(served)) as chat:
        chat.send("hello")
        assert chat.recv(timeout=10) == "hello"

    headers = {"Host": host, **token_of(served)}
    with httpx.stream("GET", f"{console.url}/events", headers=headers, timeout=30) as events:
        assert events.headers["content-type"] == "text/event-stream"
        assert events.headers["x-accel-buffering"] == "no"
        lines = events.iter_lines()
        # The second event is written only after the first has been read here.
        assert next(line for line in lines if line) == "data: one"
        served.files.write("/tmp/go", "")
        assert next(line for line in lines if line) == "data: two"


def test_envd_by_its_name(console: Server, served: Sandbox) -> None:
    envd = served.get_host(49983)
    assert ask(console, envd, "/health").status_code == 204
    assert ask(console, envd, "/init", "POST").status_code == 404
    assert ask(console, envd, "/envs").status_code == 401
    with pytest.raises(InvalidStatus):
        dialled(console, envd)

    served.files.write("signed.txt", "by name")
    query = urlsplit(served.download_url("signed.txt", use_signature_expiration=60)).query
    assert ask(console, envd, f"/files?{query}").text == "by name"
    stale = urlsplit(served.download_url("signed.txt", use_signature_expiration=-5)).query
    answer = ask(console, envd, f"/files?{stale}")
    assert (answer.status_code, answer.json()["message"]) == (401, "signature is already expired")
    broken = ask(console, envd, f"/files?{query.replace('v1_', 'v1_0')}")
    assert (broken.status_code, broken.json()["message"]) == (401, "invalid signature")


def test_names_that_lead_nowhere(console: Server, served: Sandbox, options: dict[str, Any]) -> None:
    """502 and “was not found” is what SDKs take as “not running”."""
    old = Sandbox.create(timeout=60, **options)
    host = old.get_host(PORT)
    assert old.kill()
    for name in (host, f"{PORT}-{'a' * 20}.{DOMAIN}"):
        gone = ask(console, name, headers=token_of(served))
        assert (gone.status_code, gone.json()["code"]) == (502, 502)
        assert gone.json()["message"] == "The sandbox was not found"
    closed = ask(console, served.get_host(8301), headers=token_of(served))
    assert (closed.status_code, closed.json()["port"]) == (502, 8301)
    assert ask(console, f"99999-{served.sandbox_id}.{DOMAIN}").status_code == 400
    with pytest.raises(InvalidStatus) as refused:
        dialled(console, host)
    assert refused.value.response.status_code == 502
    # Under another domain it is no sandbox's name, and the console takes no such name either.
    for domain in ("elsewhere.test", f"x.{DOMAIN}", f"{DOMAIN}.evil.test"):
        other = ask(console, f"{PORT}-{served.sandbox_id}.{domain}", headers=token_of(served))
        assert other.status_code in (400, 404), domain
        assert "accept-encoding" not in other.text.lower()  # as the server there would tell


def test_the_two_names_without_a_sandbox(console: Server, served: Sandbox) -> None:
    key = {"X-API-Key": console.facts["keys"]["e2b"]}
    listed = ask(console, f"api.{DOMAIN}", "/v2/sandboxes", headers=key)
    assert served.sandbox_id in [item["sandboxID"] for item in listed.json()]
    assert ask(console, f"api.{DOMAIN}", "/nothing", headers=key).status_code == 404
    there = {"E2b-Sandbox-Id": served.sandbox_id, "E2b-Sandbox-Port": "49983"}
    assert ask(console, f"sandbox.{DOMAIN}", "/health", headers=there).status_code == 204
    # No page of the console, whatever is asked for.
    assert ask(console, f"sandbox.{DOMAIN}", "/sign-in").status_code in (400, 404)


@pytest.mark.parametrize("name", ["release-1", "default", "base", "current", "me/default:latest"])
def test_a_release_by_its_name(options: dict[str, Any], name: str) -> None:
    with Sandbox.create(name, timeout=60, **options) as sandbox:
        info = sandbox.get_info()
        assert info.template_id == "release-1"
        skill = "/opt/weknora/tenant/skills/greeter/SKILL.md"
        assert "greeter" in sandbox.files.read(skill)


def test_a_base_template_and_no_release(console: Server, options: dict[str, Any]) -> None:
    with httpx.Client(base_url=console.url, headers=console.headers("e2b"), timeout=60) as http:
        names = [item["templateID"] for item in http.get("/templates").json()]
        assert names[0] == "release-1"
        for alias in ("release-1", "default"):
            assert http.get(f"/templates/aliases/{alias}").json()["templateID"] == "release-1"
        for missing in ("release-2", "release-0", "release-1x", "default:v2"):
            refused = http.post("/v2/sandboxes", json={"templateID": missing})
            assert (refused.status_code, missing in refused.json()["message"]) == (404, True)
            assert http.get(f"/templates/aliases/{missing}").status_code == 404
        listed = http.get("/v2/sandboxes", params={"template": "release-1"}).json()
        assert {item["templateID"] for item in listed} <= {"release-1"}
    with Sandbox.create(names[1], timeout=60, **options) as bare:
        assert not bare.files.exists("/opt/weknora/tenant/skills/greeter")
        assert bare.get_info().template_id == names[1]
