"""The `docker` backend on an engine that is reached over TLS alone, as one on another machine.

sandboxd and the engine share nothing but the connection: no process, no file, no network of one is
touched by the other.
"""

from __future__ import annotations

import datetime
import ipaddress
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sandboxes import registry, testing
from sandboxes.client import SandboxClient
from tests.sandboxes import daemon as daemons
from tests.sandboxes import dockerd as dockerds
from tests.sandboxes.backends.outside import outside_servers

pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca.pem, cert.pem and key.pem for both ends."""
    folder = tmp_path_factory.mktemp("tls")
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "the tests' own")])
    ca = _certificate(authority, authority, ca_key.public_key(), ca_key, is_ca=True)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    cert = _certificate(name, authority, key.public_key(), ca_key, is_ca=False)
    pem = serialization.Encoding.PEM
    (folder / "ca.pem").write_bytes(ca.public_bytes(pem))
    (folder / "cert.pem").write_bytes(cert.public_bytes(pem))
    plain = serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    (folder / "key.pem").write_bytes(private)
    return folder


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    signing: ec.EllipticCurvePrivateKey,
    *,
    is_ca: bool,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    )
    if not is_ca:
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(names, critical=False).add_extension(
            x509.ExtendedKeyUsage(usage), critical=False
        )
    return builder.sign(signing, hashes.SHA256())


@pytest.fixture(scope="module")
def remote_dockerd(certificates: Path) -> Iterator[tuple[dockerds.Dockerd, str]]:
    """An engine that listens on TLS, and its address."""
    if reason := dockerds.why_not():
        pytest.skip(reason)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    options = [
        f"--host=tcp://127.0.0.1:{port}",
        "--tlsverify",
        f"--tlscacert={certificates}/ca.pem",
        f"--tlscert={certificates}/cert.pem",
        f"--tlskey={certificates}/key.pem",
    ]
    with dockerds.start(*options) as daemon:
        yield daemon, f"tcp://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def sandboxd(
    remote_dockerd: tuple[dockerds.Dockerd, str], certificates: Path
) -> Iterator[daemons.Daemon]:
    """Has to leave nothing at the engine."""
    if reason := daemons.why_not():
        pytest.skip(reason)
    dockerd, url = remote_dockerd
    options = (
        "--docker-host",
        url,
        "--docker-tls-dir",
        str(certificates),
        "--docker-allow-private",
    )
    with daemons.start(options=("--engine", "docker", *options)) as daemon:
        yield daemon
        daemon.stop()
        assert dockerd.containers() == []


@pytest.fixture(scope="module")
async def client(sandboxd: daemons.Daemon) -> AsyncIterator[SandboxClient]:
    settings = {"socket": str(sandboxd.socket)}
    async with await registry.open_client("docker", settings) as client:
        yield client


@pytest.fixture(scope="module")
def outside(sandboxd: daemons.Daemon) -> Iterator[testing.Outside]:
    if Path("/proc/sys/net/ipv4/ip_forward").read_text().strip() != "1":
        pytest.skip("the engine of these tests sets no rule, and the host does not forward")
    with outside_servers() as servers:
        yield servers


@pytest.fixture
def leftovers(remote_dockerd: tuple[dockerds.Dockerd, str]) -> Callable[[str], list[str]]:
    dockerd, _ = remote_dockerd
    return lambda sandbox_id: [name for name in dockerd.containers() if sandbox_id in name]


class TestCapabilities(testing.CapabilityContract): ...


class TestLifecycle(testing.LifecycleContract): ...


class TestExecInput(testing.ExecInputContract): ...


class TestExecOutput(testing.ExecOutputContract): ...


class TestExecResult(testing.ExecResultContract): ...


class TestExecDeadline(testing.ExecDeadlineContract): ...


class TestExecLeaving(testing.ExecLeavingContract): ...


class TestFiles(testing.FileContract): ...


class TestFileStreams(testing.FileStreamContract): ...


class TestFileLinks(testing.FileLinkContract): ...


class TestDirectories(testing.DirectoryContract): ...


class TestSnapshots(testing.SnapshotContract): ...


class TestOutbound(testing.OutboundContract): ...


class TestNetworkUpdate(testing.NetworkUpdateContract): ...


class TestInbound(testing.InboundContract): ...


class TestTerminal(testing.TerminalContract): ...


class TestErrors(testing.ErrorContract): ...


class TestConcurrency(testing.ConcurrencyContract): ...


class TestCleanup(testing.CleanupContract): ...
