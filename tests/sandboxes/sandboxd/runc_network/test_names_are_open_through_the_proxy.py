"""Domain entries: a proxy inside the sandbox's namespace, by CONNECT and for plain HTTP."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys

import pytest

from sandboxes.sandboxd.engines.runc.network.namespaces import in_namespace

LISTED = ("*.example.com", "files.example.org")


@pytest.fixture
async def listed(network, internet, policy):
    """A sandbox that may reach the names in LISTED, and a web server behind all of them."""
    internet.names = {
        "www.example.com": [internet.server],
        "files.example.org": [internet.server],
        "unlisted.example.net": [internet.server],
        "inside.example.com": [internet.private],
        "metadata.example.com": [internet.link_local],
        "host.example.com": [internet.host],
        "zero.example.com": ["0.0.0.0"],  # noqa: S104
        "loop.example.com": ["127.0.0.1"],
        "mixed.example.com": [internet.private, internet.server],
    }
    await internet.serve(80, _web)
    return await network.create("listed", policy(outbound=False, allow=LISTED))


async def _web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers with the head that it saw and the length of the body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    body = b""
    if "content-length" in head.lower():
        length = int(head.lower().split("content-length:")[1].split("\r\n")[0])
        body = await reader.readexactly(length)
    answer = head.encode() + str(len(body)).encode()
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)
    writer.close()


async def talk(network, namespace, request: bytes) -> str:
    """Send raw bytes to the proxy and read to the end."""
    port = int(network.proxy_env("listed")["HTTP_PROXY"].rpartition(":")[2])

    def exchange() -> str:
        with socket.create_connection(("127.0.0.1", port), 5) as client:
            client.settimeout(5)
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
            received = b""
            while chunk := client.recv(65536):
                received += chunk
            return received.decode()

    return await in_namespace(namespace, exchange)


def connect_to(host: str, port: int = 8080, payload: bytes = b"ping") -> bytes:
    return f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode() + payload


def get(url: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {url} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


async def test_the_environment_names_the_proxy_in_both_cases(network, listed, policy):
    env = network.proxy_env("listed")
    assert env["HTTPS_PROXY"] == env["https_proxy"] == env["http_proxy"] == "http://127.0.0.1:3128"
    assert "127.0.0.1" in env["NO_PROXY"]
    assert env["no_proxy"] == env["NO_PROXY"]
    await network.create("open", policy(outbound=True))
    assert network.proxy_env("open") == {}


async def test_a_listed_name_is_tunnelled(network, internet, listed):
    for host in ("www.example.com", "WWW.Example.COM", "files.example.org", "www.example.com."):
        answer = await talk(network, listed, connect_to(host))
        assert answer.startswith("HTTP/1.1 200"), answer
        assert answer.endswith(f"from {internet.host}\nping")


async def test_plain_http_is_forwarded_without_what_was_meant_for_the_proxy(network, listed):
    request = get(
        "http://www.example.com/a/b?c=d",
        "Proxy-Authorization: Basic c2VjcmV0",
        "Proxy-Connection: keep-alive",
        "Connection: X-Drop",
        "X-Drop: 1",
        "X-Keep: 2",
    )
    answer = await talk(network, listed, request)
    assert answer.startswith("HTTP/1.1 200")
    assert "GET /a/b?c=d HTTP/1.1" in answer
    assert "X-Keep: 2" in answer or "x-keep: 2" in answer
    assert "secret" not in answer
    assert "drop" not in answer.lower()


async def test_the_host_header_is_that_of_the_judged_url(network, listed):
    answer = await talk(network, listed, get("http://www.example.com/", "X: y"))
    assert "host: www.example.com" in answer.lower()
    assert "host: x\r\n" not in answer.lower()


async def test_a_body_is_passed_on_and_the_connection_serves_again(network, listed):
    post = (
        b"POST http://www.example.com/up HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n"
        + b"b" * 200_000
    )
    answer = await talk(network, listed, post + get("http://files.example.org/second"))
    assert "200000HTTP/1.1 200" in answer
    assert "GET /second" in answer


@pytest.mark.parametrize(
    "host", ["unlisted.example.net", "example.com", "notexample.com", "www.example.com.evil.net"]
)
async def test_an_unlisted_name_is_refused_with_a_sentence(network, internet, listed, host):
    internet.names[host] = [internet.server]
    for request in (connect_to(host), get(f"http://{host}/")):
        answer = await talk(network, listed, request)
        assert answer.startswith("HTTP/1.1 403")
        assert f"{host} is not in this sandbox's allow list; ask the space's owner" in answer
    denial = network.recent_denials("listed")[-1]
    assert (denial.host, denial.port, denial.rule) == (host, 80, "outbound")


@pytest.mark.parametrize("name", ["inside", "metadata", "host", "zero", "loop"])
async def test_a_listed_name_opens_no_private_address(network, internet, listed, name):
    server = await asyncio.start_server(internet._echo, "0.0.0.0", 8080)  # noqa: S104
    async with server:
        answer = await talk(network, listed, connect_to(f"{name}.example.com"))
    assert answer.startswith("HTTP/1.1 403"), answer
    assert network.recent_denials("listed")[-1].rule == "built-in"


async def test_of_several_addresses_only_the_permitted_is_dialled(network, internet, listed):
    answer = await talk(network, listed, connect_to("mixed.example.com"))
    assert answer.endswith(f"from {internet.host}\nping")


async def test_a_private_address_is_open_if_the_list_names_it(network, internet, listed, policy):
    both = policy(outbound=False, allow=(*LISTED, internet.private))
    await network.apply("listed", both)
    answer = await talk(network, listed, connect_to("inside.example.com"))
    assert answer.endswith("ping")
    assert (await talk(network, listed, connect_to(internet.private))).endswith("ping")
    for address in (internet.server, internet.resolver, "127.0.0.1", "2130706433", "0x7f.1"):
        answer = await talk(network, listed, connect_to(address))
        assert answer.startswith("HTTP/1.1 403"), address


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
        b"GET ftp://www.example.com/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://user@[::1]/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://www.example.com:99999/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT www.example.com HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT [::1]:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
async def test_what_is_no_proxy_request_is_a_bad_request(network, listed, request_bytes):
    assert (await talk(network, listed, request_bytes)).startswith("HTTP/1.1 400")


async def test_nonsense_ends_the_connection_and_nothing_else(network, internet, listed):
    for junk in (b"\x16\x03\x01\x02\x00" * 20, b"GET " + b"a" * 100_000, b""):
        assert "200" not in await talk(network, listed, junk)
    assert (await talk(network, listed, connect_to("www.example.com"))).endswith("ping")


async def test_an_unknown_or_silent_name_is_a_bad_gateway(network, internet, listed):
    answer = await talk(network, listed, connect_to("nowhere.example.com"))
    assert answer.startswith("HTTP/1.1 502")
    assert "could not be resolved" in answer
    answer = await talk(network, listed, connect_to("www.example.com", 9))
    assert answer.startswith("HTTP/1.1 502")
    assert "does not answer on port 9" in answer


async def test_there_is_no_way_past_the_proxy(network, internet, listed, reach):
    assert await reach(listed, internet.server) == "ENETUNREACH"


async def test_an_unmodified_client_uses_it_by_its_environment(network, internet, listed):
    script = (
        "import urllib.request as r; print(r.urlopen('http://www.example.com/py').read().decode())"
    )

    def run() -> str:
        return subprocess.run(
            [sys.executable, "-c", script],
            env=network.proxy_env("listed"),
            capture_output=True,
            text=True,
            timeout=20,
        ).stdout

    assert "GET /py" in await in_namespace(listed, run)


async def test_a_large_tunnel_keeps_every_byte(network, internet, listed):
    port = int(network.proxy_env("listed")["HTTP_PROXY"].rpartition(":")[2])
    payload = bytes(range(256)) * 40_000

    def exchange() -> bytes:
        with socket.create_connection(("127.0.0.1", port), 5) as client:
            client.sendall(connect_to("www.example.com", payload=b""))
            received = b""
            while b"\r\n\r\n" not in received:
                received += client.recv(65536)
            sent = 0
            while sent < len(payload):
                sent += client.send(payload[sent : sent + 100_000])
                received += client.recv(1 << 20)
            client.shutdown(socket.SHUT_WR)
            while chunk := client.recv(65536):
                received += chunk
            return received

    received = await in_namespace(listed, exchange)
    assert received.endswith(payload)
