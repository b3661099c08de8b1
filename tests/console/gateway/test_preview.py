"""A port seen through the console: by who may run there, in an origin of its own, without a cookie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from e2b import Sandbox
from websockets.sync.client import connect as websocket

from tests.console.api.server import Server
from tests.console.gateway.replicas import manage
from tests.sandboxes.daemon import Daemon

pytestmark = [pytest.mark.sandbox, pytest.mark.slow]

SIGN_IN = """
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.utils import timezone
from console.tenants.account_models import SignIn
from console.tenants.models import Membership, Space, User
for role in ("operator", "viewer"):
    user = User.objects.create_user(role)
    space = Space.objects.get(pk="{space}")
    Membership.objects.create(user=user, tenant=space.tenant, space=space, role=role)
    session = SessionStore()
    session[SESSION_KEY] = user.pk
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.create()
    now = timezone.now()
    SignIn.objects.create(session_id=session.session_key, user=user, created_at=now, last_used_at=now)
    print("cookie", role, session.session_key)
row = __import__("console.fleet.models").fleet.models.Session.objects.get(sandbox_id="{sandbox}")
print("cookie", "row", row.pk)
"""

# A server of the standard library alone: tells what it was sent, redirects, and echoes on a WebSocket.
APP = r"""
import base64, hashlib, http.server
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
            return
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "/here?x=1")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = (self.path + "\n" + str(self.headers)).encode()
        self.send_response(200)
        self.send_header("Set-Cookie", "session=stolen; Path=/")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", 8300), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def shown(
    console: Server, daemon: Daemon, redis_socket: str, options: dict[str, Any]
) -> Iterator[dict[str, str]]:
    sandbox = Sandbox.create(timeout=120, **options)
    try:
        sandbox.files.write("app.py", APP)
        sandbox.commands.run("python3 app.py", background=True)
        sandbox.commands.run(
            "for i in $(seq 100); do curl -s localhost:8300 && break; sleep 0.1; done"
        )
        told = manage(
            "shell",
            "-c",
            SIGN_IN.format(space=console.facts["space"], sandbox=sandbox.sandbox_id),
            folder=console.log.parent,
            redis_socket=redis_socket,
            sandboxd_socket=str(daemon.socket),
        )
        lines = (line.split() for line in told.splitlines() if line.startswith("cookie "))
        yield {name: value for _, name, value in lines}
    finally:
        sandbox.kill()


def opened(
    console: Server, shown: dict[str, str], path: str, who: str = "operator"
) -> httpx.Response:
    cookies = {"session": shown[who]} if who else {}
    with httpx.Client(base_url=console.url, cookies=cookies) as browser:
        return browser.get(f"/sessions/{shown['row']}/ports/8300{path}")


def test_a_member_sees_the_page_confined(console: Server, shown: dict[str, str]) -> None:
    ticket = opened(console, shown, "/a%20b/?q=1")
    assert ticket.status_code == 302
    answer = httpx.get(
        f"{console.url}{ticket.headers['location']}",
        headers={"Cookie": f"session={shown['operator']}", "Authorization": "Bearer x"},
    )
    assert answer.status_code == 200
    assert answer.text.startswith("/a%20b/?q=1\n")
    assert answer.headers["content-security-policy"] == "sandbox allow-scripts allow-forms"
    assert "set-cookie" not in answer.headers
    for secret in (shown["operator"], "Bearer", "e2b-traffic-access-token"):
        assert secret.lower() not in answer.text.lower()


def test_redirects_and_websockets_stay_inside(console: Server, shown: dict[str, str]) -> None:
    base = opened(console, shown, "/").headers["location"].rstrip("/")
    away = httpx.get(f"{console.url}{base}/away")
    assert away.headers["location"] == f"{base}/here?x=1"
    url = f"{console.url}{base}/ws".replace("http://", "ws://")
    with websocket(url) as socket:
        socket.send("hello")
        assert socket.recv(timeout=10) == "hello"


def test_others_do_not(console: Server, shown: dict[str, str]) -> None:
    assert opened(console, shown, "/", who="viewer").status_code == 404
    stranger = opened(console, shown, "/", who="")
    assert stranger.status_code == 302
    assert "sign-in" in stranger.headers["location"]
    ticket = opened(console, shown, "/").headers["location"]
    forged = ticket.replace("/ports/8300/", "/ports/8301/")
    assert httpx.get(f"{console.url}{forged}").status_code == 404
    assert httpx.get(f"{console.url}{ticket.replace('~', '~x')}").status_code == 404
