"""A real TLS server: trusted, not trusted, and under another name."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from sandboxes.backends.e2b import E2B_CAPABILITIES, E2BClient
from sandboxes.errors import InvalidRequest, Unavailable
from sandboxes.urlguard import UrlGuard
from sandboxes.wire.transport import Dial
from tests.sandboxes.wire import servers

BODY = b'{"sandboxID":"abc123","templateID":"t","state":"running"}'


@dataclass(frozen=True)
class Server:
    port: int
    ca_pem: str


def certificate(directory: Path) -> tuple[Path, str]:
    """One file with key and certificate for api.example.test, its own CA; and the PEM to trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "api.example.test")])
    names = [x509.DNSName("api.example.test"), x509.IPAddress(ipaddress.ip_address("192.0.2.1"))]
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = signed.public_bytes(serialization.Encoding.PEM).decode()
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    path = directory / "server.pem"
    path.write_text(secret + pem)
    return path, pem


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
            writer.write(head % len(BODY) + BODY)
            await writer.drain()
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    path, pem = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    listening = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    yield Server(listening.sockets[0].getsockname()[1], pem)
    listening.close()
    await listening.wait_closed()


def client(
    server: Server,
    *,
    host: str = "api.example.test",
    ca_pem: str | None,
    guard: UrlGuard | None = None,
) -> E2BClient:
    """Dials this machine; Host and the name that TLS checks are the URL's."""
    dial = Dial(address=f"127.0.0.1:{server.port}", ca_pem=ca_pem, guard=guard)
    settings = servers.settings(api_url=f"https://{host}", control_dial=dial)
    return E2BClient(settings, E2B_CAPABILITIES)


async def test_a_ca_of_ones_own_is_trusted(server: Server) -> None:
    async with client(server, ca_pem=server.ca_pem) as trusting:
        assert (await trusting.get("abc123")).id == "abc123"


async def test_the_guard_leaves_the_checks_of_tls_as_they_are(server: Server) -> None:
    guard = UrlGuard(allow_private=True)
    async with client(server, ca_pem=server.ca_pem, guard=guard) as trusting:
        assert (await trusting.get("abc123")).id == "abc123"
    async with client(server, ca_pem=None, guard=guard) as wary:
        with pytest.raises(Unavailable, match="is not trusted; add its CA"):
            await wary.get("abc123")
    other = client(server, host="other.example.test", ca_pem=server.ca_pem, guard=guard)
    async with other:
        with pytest.raises(Unavailable, match="certificate"):
            await other.get("abc123")


async def test_an_unknown_ca_is_unavailable_and_says_so(server: Server) -> None:
    async with client(server, ca_pem=None) as wary:
        with pytest.raises(Unavailable, match="is not trusted; add its CA"):
            await wary.get("abc123")


async def test_another_name_is_not_trusted(server: Server) -> None:
    async with client(server, host="other.example.test", ca_pem=server.ca_pem) as wary:
        with pytest.raises(Unavailable, match="certificate"):
            await wary.get("abc123")


async def test_a_broken_certificate_is_an_invalid_request(server: Server) -> None:
    with pytest.raises(InvalidRequest, match="PEM"):
        client(server, ca_pem="-----BEGIN nonsense")
