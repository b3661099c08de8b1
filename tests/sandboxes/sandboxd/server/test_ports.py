"""Ports of a sandbox through sandboxd: HTTP and WebSocket, both switches, both ways of addressing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from websockets.asyncio.client import unix_connect
from websockets.exceptions import InvalidStatus

from tests.sandboxes.daemon import Daemon
from tests.sandboxes.sandboxd.server.conftest import Create
from tests.sandboxes.sandboxd.server.raw import RawSandbox

pytestmark = pytest.mark.sandbox

PORT = 8123

HTTP_SERVER = """
import http.server, json, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path == "/slow":
            self.send_response(200); self.send_header("Transfer-Encoding", "chunked"); self.end_headers()
            for _ in range(3):
                data = str(time.time()).encode()
                self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(data), data)); self.wfile.flush()
                time.sleep(0.2)
            self.wfile.write(b"0\\r\\n\\r\\n")
            return
        self.reply({"path": self.path, "headers": dict(self.headers.items())})
    def do_POST(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            size, body = None, b""
            while size != 0:
                size = int(self.rfile.readline(), 16); body += self.rfile.read(size); self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers["Content-Length"]))
        self.reply({"size": len(body)}, 201)
    def reply(self, data, status=200):
        body = json.dumps(data).encode()
        self.send_response(status); self.send_header("Content-Length", str(len(body)))
        self.send_header("X-From", "sandbox"); self.end_headers(); self.wfile.write(body)
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
"""

# Standard library only: the handshake, then echoes text and binary frames until a close.
WEBSOCKET_SERVER = """
import asyncio, base64, hashlib
async def serve(reader, writer):
    head = (await reader.readuntil(b"\\r\\n\\r\\n")).decode()
    fields = dict(l.split(": ", 1) for l in head.split("\\r\\n")[1:] if ": " in l)
    low = {k.lower(): v for k, v in fields.items()}
    key = low["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
    extra = "Sec-WebSocket-Protocol: chat\\r\\n" if "sec-websocket-protocol" in low else ""
    writer.write(f"HTTP/1.1 101 S\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n{extra}Sec-WebSocket-Accept: {accept}\\r\\n\\r\\n".encode())
    while True:
        first, second = await reader.readexactly(2)
        size = second & 127
        if size == 126: size = int.from_bytes(await reader.readexactly(2), "big")
        elif size == 127: size = int.from_bytes(await reader.readexactly(8), "big")
        mask = await reader.readexactly(4)
        data = bytes(b ^ mask[i % 4] for i, b in enumerate(await reader.readexactly(size)))
        head = bytes([first])
        head += bytes([len(data)]) if len(data) < 126 else bytes([126]) + len(data).to_bytes(2, "big")
        writer.write(head + data); await writer.drain()
        if first & 15 == 8: writer.close(); return
async def main():
    async with await asyncio.start_server(serve, "0.0.0.0", PORT) as server: await server.serve_forever()
asyncio.run(main())
"""


async def serve(sandbox: RawSandbox, code: str) -> None:
    """Returns when the server accepts connections."""
    start = {"process": {"cmd": "python3", "args": ["-c", code.replace("PORT", str(PORT))]}}
    async with sandbox.stream("process.Process/Start", start) as frames:
        await anext(frames)
    async with asyncio.timeout(10):
        while True:
            done = await sandbox.sh(f"(exec 3<>/dev/tcp/127.0.0.1/{PORT}) 2>&1 || echo no")
            if b"no" not in done.stdout:
                return


def to_port(sandbox: RawSandbox, **extra: str) -> dict[str, str]:
    return sandbox.headers(PORT, **extra)


async def test_http_goes_through_with_its_own_headers_only(sandbox: RawSandbox) -> None:
    await serve(sandbox, HTTP_SERVER)
    response = await sandbox.http.get(
        "/a%20b?x=1&y=%2F", headers=to_port(sandbox, **{"X-Mine": "yes", "X-API-Key": "secret"})
    )
    assert response.status_code == 200
    assert response.headers["X-From"] == "sandbox"
    seen = response.json()
    assert seen["path"] == "/a%20b?x=1&y=%2F"
    headers = {name.lower(): value for name, value in seen["headers"].items()}
    assert headers["x-mine"] == "yes"
    hidden = ("x-access-token", "x-api-key", "e2b-sandbox-id", "e2b-traffic-access-token")
    assert not set(hidden) & set(headers)


async def test_bodies_stream_both_ways(sandbox: RawSandbox) -> None:
    await serve(sandbox, HTTP_SERVER)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b"x" * 65536

    chunked = await sandbox.http.post("/", content=chunks(), headers=to_port(sandbox))
    assert (chunked.status_code, chunked.json()["size"]) == (201, 64 * 65536)
    sized = await sandbox.http.post("/", content=b"y" * 1000, headers=to_port(sandbox))
    assert sized.json()["size"] == 1000

    delays = []
    async with sandbox.http.stream("GET", "/slow", headers=to_port(sandbox)) as response:
        async for chunk in response.aiter_raw():
            delays.append(time.time() - float(chunk))
    assert len(delays) == 3
    assert max(delays) < 0.15


async def test_the_host_name_addresses_too(sandbox: RawSandbox) -> None:
    await serve(sandbox, HTTP_SERVER)
    host = f"{PORT}-{sandbox.id}.example.com"
    response = await sandbox.http.get("/by-host", headers={"Host": host})
    assert response.json()["path"] == "/by-host"
    assert response.json()["headers"]["host"] == host
    envd = await sandbox.http.get("/health", headers={"Host": f"49983-{sandbox.id}.example.com"})
    assert envd.status_code == 204


async def test_the_host_can_be_masked(create: Create) -> None:
    sandbox = await create(network={"maskRequestHost": "localhost:${PORT}"})
    await serve(sandbox, HTTP_SERVER)
    response = await sandbox.http.get("/", headers=to_port(sandbox))
    assert response.json()["headers"]["host"] == f"localhost:{PORT}"


async def test_closed_inbound_asks_for_the_traffic_token(create: Create) -> None:
    sandbox = await create(network={"allowPublicTraffic": False})
    await serve(sandbox, HTTP_SERVER)

    missing = await sandbox.http.get("/", headers=to_port(sandbox))
    assert missing.status_code == 403
    assert missing.json() == {
        "sandboxId": sandbox.id,
        "message": "Sandbox is secured with traffic access token. "
        "Token header 'e2b-traffic-access-token' is missing",
        "code": 403,
    }
    wrong = await sandbox.http.get(
        "/", headers=to_port(sandbox, **{"E2B-Traffic-Access-Token": "wrong"})
    )
    assert wrong.status_code == 403
    assert "is invalid" in wrong.json()["message"]
    token = sandbox.reply["trafficAccessToken"]
    right = await sandbox.http.get(
        "/", headers=to_port(sandbox, **{"E2B-Traffic-Access-Token": token})
    )
    assert right.status_code == 200
    # The port that a header names must be the one judged and the one dialled.
    sneaky = await sandbox.http.get(
        "/", headers={**to_port(sandbox), "E2b-Sandbox-Port": "0049983"}
    )
    assert sneaky.status_code == 400


async def test_a_closed_port_says_so(sandbox: RawSandbox) -> None:
    response = await sandbox.http.get("/", headers=sandbox.headers(9))
    assert response.status_code == 502
    assert response.json() == {
        "sandboxId": sandbox.id,
        "message": "The sandbox is running but port is not open",
        "port": 9,
        "code": 502,
    }


async def test_half_an_address_is_refused(sandbox: RawSandbox) -> None:
    for headers in (
        {"E2b-Sandbox-Id": sandbox.id},
        {"E2b-Sandbox-Port": "80"},
        {"E2b-Sandbox-Id": sandbox.id, "E2b-Sandbox-Port": "x"},
        {"E2b-Sandbox-Id": sandbox.id, "E2b-Sandbox-Port": "70000"},
        {"E2b-Sandbox-Id": "A-b", "E2b-Sandbox-Port": "80"},
    ):
        response = await sandbox.http.get("/health", headers=headers)
        assert response.status_code == 400
        assert response.json()["message"]


async def test_websockets_pass_messages_and_closes(sandbox: RawSandbox, sandboxd: Daemon) -> None:
    await serve(sandbox, WEBSOCKET_SERVER)
    async with unix_connect(
        str(sandboxd.socket),
        "ws://sandboxd/chat?x=1",
        subprotocols=["chat"],  # type: ignore[list-item]
        additional_headers=to_port(sandbox),
        compression=None,
    ) as socket:
        assert socket.subprotocol == "chat"
        await socket.send("héllo")
        assert await socket.recv() == "héllo"
        await socket.send(b"\x00\xff" * 500)
        assert await socket.recv() == b"\x00\xff" * 500
        await socket.close(4001, "done")
    assert socket.close_code == 4001


async def test_websockets_obey_the_inbound_switch(create: Create, sandboxd: Daemon) -> None:
    sandbox = await create(network={"allowPublicTraffic": False})
    await serve(sandbox, WEBSOCKET_SERVER)
    with pytest.raises(InvalidStatus) as refused:
        async with unix_connect(
            str(sandboxd.socket), "ws://sandboxd/", additional_headers=to_port(sandbox)
        ):
            pass
    assert refused.value.response.status_code == 403


async def test_a_server_that_speaks_no_http_is_a_502(sandbox: RawSandbox) -> None:
    await serve(
        sandbox,
        "import socketserver\n"
        "class H(socketserver.BaseRequestHandler):\n"
        "    def handle(self): self.request.sendall(b'garbage\\r\\n\\r\\n')\n"
        "socketserver.ThreadingTCPServer(('127.0.0.1', PORT), H).serve_forever()\n",
    )
    response = await sandbox.http.get("/", headers=to_port(sandbox))
    assert response.status_code == 502
    assert response.json()["message"]
