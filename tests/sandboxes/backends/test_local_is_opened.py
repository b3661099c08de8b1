"""Opening the `local` backend: settings, and what a person reads when it fails."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxes import registry
from sandboxes.backends import local
from sandboxes.errors import InvalidRequest, SandboxError, Unavailable


async def refusal(path: Path | str) -> SandboxError:
    with pytest.raises(SandboxError) as caught:
        await registry.open_client("local", {"socket": str(path)})
    assert caught.value.provider == "local"
    assert str(caught.value).endswith(".")
    return caught.value


async def test_a_missing_socket_names_the_mend(tmp_path: Path) -> None:
    error = await refusal(tmp_path / "none.sock")
    assert type(error) is Unavailable
    assert "make up" in str(error)
    assert "none.sock" in str(error)


async def test_a_dead_socket_names_the_mend(tmp_path: Path) -> None:
    path = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    error = await refusal(path)
    assert type(error) is Unavailable
    assert "make up" in str(error)


async def test_a_file_is_no_socket(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    assert "not a socket" in str(await refusal(path))


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Path]:
    """Something that is no sandboxd answers on a socket."""
    path = tmp_path / "stranger.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def answer() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>"
                )

    thread = threading.Thread(target=answer)
    thread.start()
    yield path
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


async def test_a_stranger_on_the_socket_is_told(stranger: Path) -> None:
    error = await refusal(stranger)
    assert type(error) is Unavailable
    assert "check the address" in str(error)


def test_where_the_socket_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SKILLYARD_SANDBOXD_SOCKET", raising=False)
    assert local.Settings().socket_path == "/run/skillyard/sandboxd.sock"
    monkeypatch.setenv("SKILLYARD_SANDBOXD_SOCKET", "/elsewhere.sock")
    assert local.Settings().socket_path == "/elsewhere.sock"
    assert local.Settings(socket="/given.sock").socket_path == "/given.sock"


async def test_unknown_settings_are_named() -> None:
    with pytest.raises(InvalidRequest, match="sockett"):
        await registry.open_client("local", {"sockett": "/x"})
    with pytest.raises(InvalidRequest, match="api_key"):
        await registry.open_client("e2b", {})


def test_secret_settings_are_marked() -> None:
    fields = registry.settings_type("e2b").__dataclass_fields__
    assert {name for name, field in fields.items() if field.metadata["secret"]} == {"api_key"}
    assert not any(
        field.metadata["secret"]
        for field in registry.settings_type("local").__dataclass_fields__.values()
    )
