"""The `local` backend without root: a sandboxd of a plain account, and what it leaves behind."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from sandboxes import registry, testing
from sandboxes.client import SandboxClient
from sandboxes.errors import Unavailable
from sandboxes.testing.base import ids_of, text_of
from sandboxes.testing.pausing import counter, start_counter
from sandboxes.types import ExecRequest, ListFilter
from tests.sandboxes import daemon as daemons
from tests.sandboxes import rootless
from tests.sandboxes.backends.outside import outside_servers

pytestmark = [pytest.mark.sandbox, pytest.mark.slow]


@pytest.fixture(scope="module")
def account() -> Iterator[rootless.Account]:
    if reason := rootless.why_not():
        pytest.skip(reason)
    with rootless.account() as made:
        yield made


@pytest.fixture(scope="module")
def template(account: rootless.Account) -> str:
    """The base, brought to the account as anybody would bring it: by a tar."""
    tar = rootless.base_tar(account.home / "rootfs.tar")
    done = account.run("template", "import", "base", str(tar))
    assert done.returncode == 0, done.stderr
    tar.unlink()
    return done.stdout.split()[-1]


@pytest.fixture(scope="module")
def sandboxd(account: rootless.Account, template: str) -> Iterator[daemons.Daemon]:
    with rootless.start(account) as daemon:
        yield daemon
        daemon.stop()
        assert rootless.processes_of({account.uid, *account.mapped}) == []
        assert daemons.leftovers(daemon) == []


@pytest.fixture(scope="module")
async def client(sandboxd: daemons.Daemon) -> AsyncIterator[SandboxClient]:
    async with await registry.open_client("local", {"socket": str(sandboxd.socket)}) as client:
        yield client


@pytest.fixture(scope="module")
def outside(sandboxd: daemons.Daemon) -> Iterator[testing.Outside]:
    with outside_servers() as servers:
        yield servers


@pytest.fixture
def leftovers(sandboxd: daemons.Daemon, account: rootless.Account) -> Callable[[str], list[str]]:
    return lambda sandbox_id: rootless.leftovers(sandboxd, account, sandbox_id)


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


async def test_what_is_reduced_is_said(client: SandboxClient) -> None:
    assert not client.capabilities.resource_limits
    assert {"resource_limits", "pause", "outbound_switch"} <= set(client.capabilities.notes)


async def test_nothing_runs_as_the_account_itself(
    client: SandboxClient, sandbox: testing.SandboxFactory, account: rootless.Account
) -> None:
    box = await sandbox()
    for user, inside in (("root", 0), ("user", 1000)):
        await text_of(client, box, "setsid sleep 7020 >/dev/null 2>&1 </dev/null &", user=user)
        assert rootless.processes_of({account.mapped[inside]}), f"{user} has no id of its own"
    script = "grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status"
    assert (await text_of(client, box, script)).split() == [
        *("CapEff:", "0000000000000000"),
        *("NoNewPrivs:", "1"),
        *("Seccomp:", "2"),
    ]


async def test_a_crash_loses_nothing(
    client: SandboxClient, sandbox: testing.SandboxFactory, sandboxd: daemons.Daemon
) -> None:
    box = await sandbox()
    await start_counter(client, box)
    token, before, pid = await counter(client, box)
    sandboxd.crash()
    with pytest.raises(Unavailable):
        await client.get(box.id)
    sandboxd.run()
    token_after, after, pid_after = await counter(client, await client.connect(box.id))
    assert (token_after, pid_after) == (token, pid)
    assert after > before
    await client.delete(box.id)


async def test_sandboxes_end_with_the_namespaces_that_hold_them(
    client: SandboxClient,
    sandbox: testing.SandboxFactory,
    sandboxd: daemons.Daemon,
    account: rootless.Account,
) -> None:
    box = await sandbox()
    await start_counter(client, box)
    sandboxd.crash()
    os.kill(rootless.holder(sandboxd), signal.SIGKILL)
    sandboxd.run()
    assert await ids_of(client, ListFilter()) == []
    assert rootless.processes_of(account.mapped) == []
    assert (await client.run(await sandbox(), ExecRequest(argv=("true",)))).ok


def test_an_account_without_ids_is_told_how_to_get_them() -> None:
    if reason := rootless.why_not():
        pytest.skip(reason)
    with rootless.account(ids=False) as poor:
        done = poor.run("serve")
    assert done.returncode == 1
    assert "usermod --add-subuids" in done.stderr
    assert poor.name in done.stderr
    assert len(done.stderr.splitlines()) == 1
