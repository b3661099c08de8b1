"""The `local` backend, against a real sandboxd with the runc engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from sandboxes import registry, testing
from sandboxes.client import SandboxClient
from tests.sandboxes import daemon as daemons
from tests.sandboxes.backends.outside import outside_servers

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
async def client(sandboxd: daemons.Daemon) -> AsyncIterator[SandboxClient]:
    async with await registry.open_client("local", {"socket": str(sandboxd.socket)}) as client:
        yield client


@pytest.fixture(scope="module")
def outside(sandboxd: daemons.Daemon) -> Iterator[testing.Outside]:
    with outside_servers() as servers:
        yield servers


@pytest.fixture
def leftovers(sandboxd: daemons.Daemon) -> Callable[[str], list[str]]:
    return lambda sandbox_id: daemons.leftovers(sandboxd, sandbox_id)


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
