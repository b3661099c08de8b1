"""The `docker` backend, against a real sandboxd on a Docker engine of the tests' own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from sandboxes import registry, testing
from sandboxes.client import SandboxClient
from sandboxes.errors import Unsupported
from sandboxes.network import CLOSED
from sandboxes.types import CreateRequest, OnTimeout, TimeoutPolicy
from tests.sandboxes import daemon as daemons
from tests.sandboxes import dockerd as dockerds
from tests.sandboxes.backends.outside import outside_servers

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def sandboxd(dockerd: dockerds.Dockerd) -> Iterator[daemons.Daemon]:
    """Has to leave nothing on the host."""
    if reason := daemons.why_not():
        pytest.skip(reason)
    with daemons.start(options=("--engine", "docker", "--docker-host", dockerd.url)) as daemon:
        yield daemon
        daemon.stop()
        assert leftovers_of(daemon, dockerd) == []


@pytest.fixture(scope="module")
async def client(sandboxd: daemons.Daemon) -> AsyncIterator[SandboxClient]:
    settings = {"socket": str(sandboxd.socket)}
    async with await registry.open_client("docker", settings) as client:
        yield client


@pytest.fixture(scope="module")
def outside(sandboxd: daemons.Daemon) -> Iterator[testing.Outside]:
    with outside_servers() as servers:
        yield servers


@pytest.fixture
def leftovers(sandboxd: daemons.Daemon, dockerd: dockerds.Dockerd) -> Callable[[str], list[str]]:
    return lambda sandbox_id: leftovers_of(sandboxd, dockerd, sandbox_id)


def leftovers_of(
    daemon: daemons.Daemon, dockerd: dockerds.Dockerd, sandbox_id: str | None = None
) -> list[str]:
    """What the host still has of a sandbox, and what Docker has; without an id, of any."""
    found = daemons.leftovers(daemon, sandbox_id)
    return found + [
        f"container {name}" for name in dockerd.containers() if (sandbox_id or "") in name
    ]


class TestCapabilities(testing.CapabilityContract): ...


class TestLifecycle(testing.LifecycleContract): ...


class TestMetadata(testing.MetadataContract): ...


class TestExecInput(testing.ExecInputContract): ...


class TestExecOutput(testing.ExecOutputContract): ...


class TestExecResult(testing.ExecResultContract): ...


class TestExecDeadline(testing.ExecDeadlineContract): ...


class TestExecLeaving(testing.ExecLeavingContract): ...


class TestFiles(testing.FileContract): ...


class TestFileStreams(testing.FileStreamContract): ...


class TestFileLinks(testing.FileLinkContract): ...


class TestDirectories(testing.DirectoryContract): ...


class TestPause(testing.PauseContract): ...


class TestIdleTimeout(testing.IdleTimeoutContract): ...


class TestSnapshots(testing.SnapshotContract): ...


class TestTemplates(testing.TemplateContract): ...


class TestOutbound(testing.OutboundContract): ...


class TestNetworkUpdate(testing.NetworkUpdateContract): ...


class TestInbound(testing.InboundContract): ...


class TestTerminal(testing.TerminalContract): ...


class TestErrors(testing.ErrorContract): ...


class TestConcurrency(testing.ConcurrencyContract): ...


class TestCleanup(testing.CleanupContract): ...


async def test_pausing_on_idle_is_refused_and_not_forgotten(
    client: SandboxClient, template: str
) -> None:
    timeout = TimeoutPolicy(timeout_s=60, on_timeout=OnTimeout.PAUSE)
    request = CreateRequest(template=template, network=CLOSED, timeout=timeout)
    with pytest.raises(Unsupported, match="rebuilt at its next use"):
        await client.create(request)
