"""A console process with the gateway in it, on a sandboxd and a Redis of the tests' own."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.console.api.server import Server, start
from tests.sandboxes import daemon as daemons

DOMAIN = "gateway.test"


@pytest.fixture(scope="module")
def redis_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("redis")
    socket = folder / "redis.sock"
    process = subprocess.Popen(
        [
            "redis-server",
            "--port",
            "0",
            "--unixsocket",
            str(socket),
            "--save",
            "",
            "--dir",
            str(folder),
        ],
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 10
    while not socket.exists():
        assert time.monotonic() < deadline, "redis-server did not start"
        time.sleep(0.02)
    yield str(socket)
    process.terminate()
    process.wait(10)


@pytest.fixture(scope="module")
def daemon() -> Iterator[daemons.Daemon]:
    if reason := daemons.why_not():
        pytest.skip(reason)
    with daemons.start() as running:
        yield running
        running.stop()
        assert daemons.leftovers(running) == []


@pytest.fixture(scope="module")
def console(
    daemon: daemons.Daemon, redis_socket: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("console")
    with start(folder, redis_socket=redis_socket, sandboxd_socket=str(daemon.socket)) as server:
        yield server


@pytest.fixture(scope="module")
def options(console: Server) -> dict[str, Any]:
    """What every call of the SDK is given, so that nothing comes from the environment."""
    return {
        "api_url": console.url,
        "sandbox_url": console.url,
        "api_key": console.facts["keys"]["e2b"],
        "domain": DOMAIN,
    }
