"""The official E2B SDK as a witness: at the same server it and our client see and do the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from e2b import (
    AsyncSandbox,
    CommandExitException,
    SandboxNotFoundException,
    SandboxQuery,
    TimeoutException,
)
from e2b.exceptions import AuthenticationException

from sandboxes import registry
from sandboxes.client import SandboxClient
from sandboxes.errors import Authentication, InvalidRequest, NotFound
from sandboxes.testing import SandboxFactory
from sandboxes.testing.base import files_of, ids_of, text_of, unique
from sandboxes.types import ExecRequest, FileType, ListFilter, Sandbox, SandboxState
from tests.sandboxes import daemon as daemons

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
async def client(sandboxd_on_tcp: daemons.Daemon) -> AsyncIterator[SandboxClient]:
    """On TCP: the SDK knows no unix sockets."""
    async with await registry.open_client("e2b", our_settings(sandboxd_on_tcp)) as client:
        yield client


def e2b_settings(daemon: daemons.Daemon, api_key: str = "") -> dict[str, str]:
    url = f"http://{daemon.tcp}"
    return {"api_url": url, "sandbox_url": url, "api_key": api_key or daemon.api_key}


def our_settings(daemon: daemons.Daemon, api_key: str = "") -> dict[str, Any]:
    return {**e2b_settings(daemon, api_key), "allow_private": True}


@dataclass(frozen=True)
class Sdk:
    """All options on every call: unset ones would fall back to the environment."""

    options: dict[str, Any]

    async def connect(self, sandbox_id: str) -> AsyncSandbox:
        return await AsyncSandbox.connect(sandbox_id, timeout=300, **self.options)


@pytest.fixture
def sdk(sandboxd_on_tcp: daemons.Daemon) -> Sdk:
    return Sdk({**e2b_settings(sandboxd_on_tcp), "domain": "x.test"})


async def test_what_the_sdk_creates_we_see(client: SandboxClient, sdk: Sdk, template: str) -> None:
    tag = unique()
    theirs = await AsyncSandbox.create(
        template,
        timeout=200,
        metadata={"tag": tag, "a b": "x/y&z"},
        envs={"FROM": "sdk"},
        allow_internet_access=False,
        **sdk.options,
    )
    try:
        ours = await client.get(theirs.sandbox_id)
        info = await theirs.get_info()
        assert (ours.id, ours.template_id) == (info.sandbox_id, info.template_id)
        assert ours.metadata == info.metadata
        assert (ours.started_at, ours.end_at) == (info.started_at, info.end_at)
        box = await client.connect(theirs.sandbox_id)
        assert await text_of(client, box, "echo $FROM") == "sdk\n"
        assert await ids_of(client, ListFilter(metadata={"a b": "x/y&z", "tag": tag})) == [ours.id]
    finally:
        assert await theirs.kill()
    with pytest.raises(NotFound):
        await client.get(theirs.sandbox_id)


async def test_what_we_create_the_sdk_sees(
    client: SandboxClient, sandbox: SandboxFactory, sdk: Sdk
) -> None:
    odd = {"tag": unique(), "a b": "100%25 + & = 图"}
    box = await sandbox(metadata=odd)
    pages = AsyncSandbox.list(query=SandboxQuery(metadata=odd), **sdk.options)
    assert [info.sandbox_id for info in await pages.next_items()] == [box.id]
    theirs = await sdk.connect(box.id)
    assert theirs.traffic_access_token == box.traffic_token
    await client.delete(box.id)
    assert not await theirs.kill()
    with pytest.raises(SandboxNotFoundException):
        await sdk.connect(box.id)


@pytest.mark.parametrize(
    "script",
    [
        "echo out; echo err >&2",
        "exit 7",
        "printf '\\303\\251\\n'; pwd; id -u; echo $HOME $USER $LOGNAME $LANG $PATH",
        "head -c 300000 /dev/zero | tr '\\0' x",
        "no-such-command",
        "cat",
        "false | true; echo ${PIPESTATUS[0]}",
    ],
)
@pytest.mark.parametrize("user", ["user", "root"])
async def test_commands_do_the_same(
    client: SandboxClient, box: Sandbox, sdk: Sdk, script: str, user: str
) -> None:
    ours = await client.run(box, ExecRequest(argv=ExecRequest.shell_argv(script), user=user))
    theirs = await sdk.connect(box.id)
    try:
        done = await theirs.commands.run(script, user=user)
        seen = (done.exit_code, done.stdout, done.stderr)
    except CommandExitException as failed:
        seen = (failed.exit_code, failed.stdout, failed.stderr)
    assert (ours.exit_code, ours.stdout.decode(), ours.stderr.decode()) == seen


async def test_environment_and_directory_are_passed_alike(
    client: SandboxClient, box: Sandbox, sdk: Sdk
) -> None:
    script, env = "pwd; echo $A", {"A": "b 'c' \"d\" $e"}
    request = ExecRequest(argv=ExecRequest.shell_argv(script), env=env, cwd="/usr/lib")
    done = await (await sdk.connect(box.id)).commands.run(script, envs=env, cwd="/usr/lib")
    assert (await client.run(box, request)).stdout.decode() == done.stdout


async def test_deadlines_end_commands_alike(client: SandboxClient, box: Sandbox, sdk: Sdk) -> None:
    theirs = await sdk.connect(box.id)
    with pytest.raises(TimeoutException):
        await theirs.commands.run("sleep 7301", timeout=1)
    request = ExecRequest(argv=("sleep", "7302"), timeout_s=1)
    assert (await client.run(box, request)).killed
    assert await text_of(client, box, "pgrep -fc '[s]leep 730' || true") == "0\n"


async def test_a_background_command_of_the_sdk_is_one_of_the_sandbox(
    client: SandboxClient, box: Sandbox, sdk: Sdk
) -> None:
    theirs = await sdk.connect(box.id)
    handle = await theirs.commands.run("sleep 7303", background=True)
    assert await text_of(client, box, f"kill -0 {handle.pid} && echo there") == "there\n"
    assert await handle.kill()
    assert await text_of(client, box, "pgrep -fc '[s]leep 7303' || true") == "0\n"


@pytest.mark.parametrize("name", ["plain.txt", "with space & 图表.bin", "100%25+?#.txt"])
async def test_files_cross_over(client: SandboxClient, box: Sandbox, sdk: Sdk, name: str) -> None:
    files, theirs = files_of(client), await sdk.connect(box.id)
    data = bytes(range(256)) * 50
    await theirs.files.write(f"/home/user/sdk/{name}", data)
    async with files.read(box, f"/home/user/sdk/{name}") as stream:
        assert b"".join([chunk async for chunk in stream]) == data
    await files.write(box, f"/home/user/own/{name}", data)
    assert bytes(await theirs.files.read(f"/home/user/own/{name}", format="bytes")) == data


async def test_entries_are_told_alike(client: SandboxClient, box: Sandbox, sdk: Sdk) -> None:
    await text_of(
        client,
        box,
        "mkdir -p /tmp/t/sub; cd /tmp/t; printf 123 > f; chmod 640 f; ln -s f link; ln -s /no bad;"
        "touch sub/deep",
    )
    theirs = {
        entry.path: (entry.name, entry.size, entry.mode, entry.owner, entry.group)
        for entry in await (await sdk.connect(box.id)).files.list("/tmp/t", depth=2)
    }
    ours = await files_of(client).list(box, "/tmp/t", depth=2)
    assert {
        entry.path: (entry.name, entry.size_bytes, entry.mode, entry.owner, entry.group)
        for entry in ours
    } == theirs
    types = {entry.name: entry.type for entry in ours}
    assert types["link"] is types["bad"] is FileType.SYMLINK
    assert (types["sub"], types["f"]) == (FileType.DIRECTORY, FileType.FILE)


async def test_missing_files_are_missing_to_both(
    client: SandboxClient, box: Sandbox, sdk: Sdk
) -> None:
    theirs = await sdk.connect(box.id)
    assert not await theirs.files.exists("/tmp/none")
    with pytest.raises(NotFound):
        await files_of(client).stat(box, "/tmp/none")
    await theirs.files.make_dir("/tmp/made")
    assert not await theirs.files.make_dir("/tmp/made")
    await files_of(client).make_dir(box, "/tmp/made")
    await files_of(client).remove(box, "/tmp/made")
    assert not await theirs.files.exists("/tmp/made")


async def test_pausing_crosses_over(
    client: SandboxClient, sandbox: SandboxFactory, sdk: Sdk
) -> None:
    box = await sandbox()
    theirs = await sdk.connect(box.id)
    assert await theirs.pause()
    assert not await theirs.pause()
    assert (await client.get(box.id)).state is SandboxState.PAUSED
    await client.connect(box.id)
    assert await theirs.is_running()
    assert client.pausing is not None
    await client.pausing.pause(box.id)
    await client.pausing.pause(box.id)
    assert (await theirs.get_info()).state.value == "paused"
    assert (await (await sdk.connect(box.id)).commands.run("echo awake")).stdout == "awake\n"


async def test_snapshots_cross_over(
    client: SandboxClient, sandbox: SandboxFactory, sdk: Sdk
) -> None:
    assert client.snapshots is not None
    box = await sandbox()
    await text_of(client, box, "echo kept > /home/user/f")
    theirs = await sdk.connect(box.id)
    name = f"sdk-{unique()}"
    snapshot = await theirs.create_snapshot(name=name)
    listed = {info.id: info async for info in client.snapshots.list(sandbox_id=box.id)}
    assert set(listed) == {snapshot.snapshot_id}
    assert list(listed[snapshot.snapshot_id].names) == list(snapshot.names)
    second = await sandbox(template=snapshot.snapshot_id)
    assert await text_of(client, second, "cat /home/user/f") == "kept\n"
    await client.delete(second.id)
    assert await AsyncSandbox.delete_snapshot(snapshot.snapshot_id, **sdk.options)
    assert not await AsyncSandbox.delete_snapshot(snapshot.snapshot_id, **sdk.options)
    await client.snapshots.delete(snapshot.snapshot_id)


async def test_both_refuse_alike(
    client: SandboxClient, sdk: Sdk, sandboxd_on_tcp: daemons.Daemon
) -> None:
    wrong = "e2b_" + "0" * 40
    with pytest.raises(Authentication):
        await registry.open_client("e2b", our_settings(sandboxd_on_tcp, wrong))
    with pytest.raises(AuthenticationException):
        await AsyncSandbox.connect("a" * 20, **{**sdk.options, "api_key": wrong})
    with pytest.raises(InvalidRequest):
        await SandboxFactory(client, "no-such-template")()
    with pytest.raises(Exception, match="no-such-template"):
        await AsyncSandbox.create("no-such-template", **sdk.options)
