"""The `e2b` backend pointed at our own gateway, with a space's key; a sandboxd is behind that. The whole
contract: what takes long is left to `make test-all`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from sandboxes import registry, testing
from sandboxes.client import SandboxClient
from tests.sandboxes import daemon as daemons
from tests.sandboxes.backends.gateway import gateway_before
from tests.sandboxes.backends.outside import outside_servers

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
async def client(
    sandboxd: daemons.Daemon, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SandboxClient]:
    with gateway_before(tmp_path_factory.mktemp("console"), sandboxd.socket) as settings:
        async with await registry.open_client("e2b", settings) as client:
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


@pytest.mark.slow
class TestMetadata(testing.MetadataContract): ...


@pytest.mark.slow
class TestExecInput(testing.ExecInputContract): ...


@pytest.mark.slow
class TestExecOutput(testing.ExecOutputContract): ...


class TestExecResult(testing.ExecResultContract): ...


@pytest.mark.slow
class TestExecDeadline(testing.ExecDeadlineContract): ...


@pytest.mark.slow
class TestExecLeaving(testing.ExecLeavingContract): ...


class TestFiles(testing.FileContract): ...


@pytest.mark.slow
class TestFileStreams(testing.FileStreamContract): ...


@pytest.mark.slow
class TestFileLinks(testing.FileLinkContract): ...


@pytest.mark.slow
class TestDirectories(testing.DirectoryContract): ...


@pytest.mark.slow
class TestPause(testing.PauseContract): ...


@pytest.mark.slow
class TestIdleTimeout(testing.IdleTimeoutContract): ...


@pytest.mark.slow
class TestSnapshots(testing.SnapshotContract): ...


class TestTemplates(testing.TemplateContract): ...


@pytest.mark.slow
class TestOutbound(testing.OutboundContract): ...


@pytest.mark.slow
class TestNetworkUpdate(testing.NetworkUpdateContract): ...


@pytest.mark.slow
class TestInbound(testing.InboundContract): ...


@pytest.mark.slow
class TestTerminal(testing.TerminalContract): ...


@pytest.mark.slow
class TestErrors(testing.ErrorContract): ...


@pytest.mark.slow
class TestConcurrency(testing.ConcurrencyContract): ...


@pytest.mark.slow
class TestCleanup(testing.CleanupContract): ...
