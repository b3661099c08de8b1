"""A real sandboxd for the tests that need one."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.sandboxes import daemon as daemons
from tests.sandboxes import dockerd as dockerds


@pytest.fixture(scope="module")
def sandboxd() -> Iterator[daemons.Daemon]:
    """One for the tests of a module, which have to leave nothing on the host."""
    if reason := daemons.why_not():
        pytest.skip(reason)
    with daemons.start() as daemon:
        yield daemon
        daemon.stop()
        assert daemons.leftovers(daemon) == []


@pytest.fixture(scope="module")
def sandboxd_on_tcp() -> Iterator[daemons.Daemon]:
    """The same, listening on TCP with an API key as well."""
    if reason := daemons.why_not():
        pytest.skip(reason)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with daemons.start(tcp_port=port) as daemon:
        yield daemon
        daemon.stop()
        assert daemons.leftovers(daemon) == []


@pytest.fixture(scope="module")
def template() -> str:
    if reason := daemons.why_not():
        pytest.skip(reason)
    return daemons.base_template()


@pytest.fixture(scope="session")
def dockerd() -> Iterator[dockerds.Dockerd]:
    """A Docker engine of the tests' own."""
    if reason := dockerds.why_not():
        pytest.skip(reason)
    with dockerds.start() as daemon:
        yield daemon
