"""The `cube` backend against a fake cluster whose sandboxes are real: the whole contract."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace

import pytest

from sandboxes import registry, testing
from sandboxes.client import SandboxClient
from tests.sandboxes import daemon as daemons
from tests.sandboxes.backends.fake_cube import FakeCube, start
from tests.sandboxes.backends.outside import outside_servers

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def cube(sandboxd: daemons.Daemon) -> Iterator[FakeCube]:
    with start(sandboxd.socket) as fake:
        yield fake


@pytest.fixture(scope="module")
def template() -> str:
    if reason := daemons.why_not():
        pytest.skip(reason)
    return f"tpl-{daemons.base_template()}"


@pytest.fixture(scope="module")
async def client(cube: FakeCube) -> AsyncIterator[SandboxClient]:
    async with await registry.open_client("cube", cube.settings()) as client:
        note = {"snapshot_keeps_processes": "the fake cluster's engine copies files only"}
        client.capabilities = replace(
            client.capabilities, snapshot_keeps_processes=False, notes=note
        )
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
