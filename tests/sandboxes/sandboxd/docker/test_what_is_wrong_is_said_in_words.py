"""An engine that can't be used is refused with one sentence and the mend in it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxes.errors import InvalidRequest, SandboxError, Unavailable, Unsupported
from sandboxes.sandboxd.engines.docker.api import Api, DockerHost


async def refusal(host: DockerHost) -> SandboxError:
    with pytest.raises(SandboxError) as caught:
        await _ask(host)
    return caught.value


async def _ask(host: DockerHost) -> None:
    api = Api(host)
    try:
        await api.info()
    finally:
        await api.aclose()


async def test_no_socket(tmp_path: Path) -> None:
    error = await refusal(DockerHost(url=f"unix://{tmp_path}/none.sock"))
    assert isinstance(error, Unavailable)
    assert "Docker is not running" in error.message
    assert "--docker-host" in error.message


async def test_nobody_listens(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead.sock"))
    error = await refusal(DockerHost(url=f"unix://{tmp_path}/dead.sock"))
    assert isinstance(error, Unavailable)
    assert "systemctl restart docker" in error.message


async def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead.sock"))
    monkeypatch.setattr("os.access", lambda *_: False)  # root may do everything
    error = await refusal(DockerHost(url=f"unix://{tmp_path}/dead.sock"))
    assert isinstance(error, Unavailable)
    assert "the group that owns the socket" in error.message


@pytest.mark.parametrize(
    "url", ["docker.example", "ssh://host", "tcp://host", "tcp://h:x", "npipe://x"]
)
async def test_no_address(url: str) -> None:
    error = await refusal(DockerHost(url=url))
    assert isinstance(error, InvalidRequest)
    assert url in error.message


async def test_a_remote_engine_needs_tls() -> None:
    error = await refusal(DockerHost(url="tcp://203.0.113.1:2376"))
    assert isinstance(error, InvalidRequest)
    assert "--docker-tls-dir" in error.message


async def test_tls_files_are_missing_or_wrong(tmp_path: Path) -> None:
    host = DockerHost(url="tcp://203.0.113.1:2376", tls_dir=tmp_path)
    assert "one is missing" in (await refusal(host)).message
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).write_text("nonsense")
    error = await refusal(host)
    assert isinstance(error, InvalidRequest)
    assert "make them anew" in error.message


@pytest.fixture
def old_engine(tmp_path: Path) -> Iterator[DockerHost]:
    """One that answers every request as Docker 19.03 answers the first."""
    body = json.dumps({"ApiVersion": "1.40", "Version": "19.03.15"})
    answer = (
        f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    path = tmp_path / "old.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                while connection.recv(65536):
                    connection.sendall((answer + body).encode())

        thread = threading.Thread(target=serve)
        thread.start()
        yield DockerHost(url=f"unix://{path}")
        thread.join(10)


async def test_an_engine_that_is_too_old(old_engine: DockerHost) -> None:
    error = await refusal(old_engine)
    assert isinstance(error, Unsupported)
    assert "1.40" in error.message
    assert "install Docker 20.10 or later" in error.message
