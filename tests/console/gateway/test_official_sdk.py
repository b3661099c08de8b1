"""The official E2B SDK drives every route and stream of the gateway, unmodified, with a space's key."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from e2b import (
    AsyncSandbox,
    CommandExitException,
    PtySize,
    Sandbox,
    SandboxQuery,
    SandboxState,
    TimeoutException,
)
from websockets.sync.client import connect as websocket

from tests.console.api.server import Server

pytestmark = [pytest.mark.sandbox, pytest.mark.slow]

Options = dict[str, Any]


@pytest.fixture
def sandbox(options: Options) -> Iterator[Sandbox]:
    created = Sandbox.create("base", timeout=120, metadata={"suite": "gateway & co"}, **options)
    yield created
    created.kill()


def eventually(condition: Callable[[], Any], timeout_s: float = 15.0) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.05)
    return found


def test_commands_run_stream_and_fail(sandbox: Sandbox) -> None:
    result = sandbox.commands.run('echo "$A"; echo oops >&2', envs={"A": "b"}, cwd="/tmp")
    assert (result.stdout, result.stderr, result.exit_code) == ("b\n", "oops\n", 0)
    with pytest.raises(CommandExitException) as failed:
        sandbox.commands.run("exit 3")
    assert failed.value.exit_code == 3
    assert sandbox.commands.run("id -un", user="root").stdout == "root\n"
    with pytest.raises(TimeoutException):
        sandbox.commands.run("sleep 60", timeout=1)


def test_stdin_connect_list_and_kill_of_processes(sandbox: Sandbox) -> None:
    command = sandbox.commands.run("cat", background=True, stdin=True)
    assert command.pid in [process.pid for process in sandbox.commands.list()]
    other = sandbox.commands.connect(command.pid)
    sandbox.commands.send_stdin(command.pid, "hello")
    sandbox.commands.close_stdin(command.pid)
    assert other.wait().stdout == "hello"
    sleeper = sandbox.commands.run("sleep 60", background=True)
    assert sandbox.commands.kill(sleeper.pid) is True
    assert sandbox.commands.kill(sleeper.pid) is False


def test_files_in_every_form(sandbox: Sandbox) -> None:
    files = sandbox.files
    info = files.write("notes/ü.txt", "text", metadata={"author": "me"})
    assert (info.path, info.metadata) == ("/home/user/notes/ü.txt", {"author": "me"})
    assert files.read("notes/ü.txt") == "text"
    files.write("raw", b"\x00\xff", use_octet_stream=True)
    assert bytes(files.read("raw", format="bytes")) == b"\x00\xff"
    files.write("zipped", "z" * 10_000, gzip=True)
    assert files.read("zipped", gzip=True) == "z" * 10_000
    assert [files.make_dir("d/e"), files.make_dir("d/e")] == [True, False]
    files.rename("raw", "d/renamed")
    assert files.exists("d/renamed")
    files.remove("d")
    assert [entry.name for entry in files.list("notes")] == ["ü.txt"]


def test_signed_urls_without_an_address(sandbox: Sandbox) -> None:
    url = sandbox.upload_url("signed.txt")
    assert httpx.post(url, files={"file": ("signed.txt", b"by url")}).status_code == 200
    good = sandbox.download_url("signed.txt", use_signature_expiration=60)
    assert httpx.get(good).content == b"by url"
    stale = httpx.get(sandbox.download_url("signed.txt", use_signature_expiration=-60))
    assert (stale.status_code, stale.json()["message"]) == (401, "signature is already expired")
    assert httpx.get(good.replace("signature=v1_", "signature=v1_0")).status_code == 400


def test_watch_by_polling(sandbox: Sandbox) -> None:
    sandbox.files.make_dir("w")
    handle = sandbox.files.watch_dir("w")
    sandbox.files.write("w/a", "1")
    seen: list[Any] = []

    def written() -> bool:
        seen.extend(handle.get_new_events())
        return any(event.type.value == "write" and event.name == "a" for event in seen)

    eventually(written)
    handle.stop()


def test_terminal(sandbox: Sandbox) -> None:
    output = bytearray()
    terminal = sandbox.pty.create(PtySize(rows=24, cols=80), envs={"A": "42"})
    sandbox.pty.resize(terminal.pid, PtySize(rows=30, cols=100))
    sandbox.pty.send_stdin(terminal.pid, b"stty size; echo got-$A; exit\n")
    terminal.wait(on_pty=output.extend)
    assert b"30 100" in output
    assert b"got-42" in output


def test_pause_and_connect(sandbox: Sandbox, options: Options) -> None:
    assert [sandbox.pause(), sandbox.pause(), sandbox.is_running()] == [True, False, False]
    assert sandbox.get_info().state is SandboxState.PAUSED
    assert Sandbox.connect(sandbox.sandbox_id, timeout=100, **options).is_running()


def test_lists_have_pages_and_filters(sandbox: Sandbox, options: Options) -> None:
    with contextlib.closing(_Second(options)) as second:
        query = SandboxQuery(metadata={"suite": "gateway & co"}, state=[SandboxState.RUNNING])
        pages = Sandbox.list(query=query, limit=1, **options)
        assert [item.sandbox_id for item in pages.next_items()] == [second.id]
        assert pages.has_next
        assert [item.sandbox_id for item in pages.next_items()] == [sandbox.sandbox_id]
        assert not pages.has_next
        assert Sandbox.list(query=SandboxQuery(template="nowhere"), **options).next_items() == []
        listed = Sandbox.list(query=SandboxQuery(template="current"), **options).next_items()
        assert {second.id, sandbox.sandbox_id} <= {item.sandbox_id for item in listed}


class _Second:
    def __init__(self, options: Options) -> None:
        self._sandbox = Sandbox.create(
            "default", timeout=60, metadata={"suite": "gateway & co"}, **options
        )
        self.id = self._sandbox.sandbox_id

    def close(self) -> None:
        self._sandbox.kill()


def test_info_timeout_and_metrics(sandbox: Sandbox) -> None:
    sandbox.set_timeout(30)
    info = sandbox.get_info()
    assert info.metadata == {"suite": "gateway & co"}
    assert timedelta() < info.end_at - datetime.now(UTC) <= timedelta(seconds=30)
    assert eventually(sandbox.get_metrics)[0].mem_total > 0


def test_snapshots_belong_to_the_space(sandbox: Sandbox, options: Options, console: Server) -> None:
    rival = {**options, "api_key": console.facts["keys"]["rival"]}
    rival["api_headers"] = {"X-Skillyard-Space": console.facts["rival_space"]}
    sandbox.files.write("kept", "before")
    snapshot = sandbox.create_snapshot(name="first try")
    sandbox.files.write("kept", "after")
    assert snapshot.names == ["first try"]
    copy = Sandbox.create("first try", timeout=60, **options)
    assert copy.files.read("kept") == "before"
    copy.kill()
    found = Sandbox.list_snapshots(sandbox_id=sandbox.sandbox_id, **options).next_items()
    assert [item.snapshot_id for item in found] == [snapshot.snapshot_id]
    assert Sandbox.list_snapshots(**rival).next_items() == []
    with pytest.raises(Exception, match="not found"):
        Sandbox.create(snapshot.snapshot_id, **rival)
    assert Sandbox.delete_snapshot(snapshot.snapshot_id, **rival) is False
    assert Sandbox.delete_snapshot(snapshot.snapshot_id, **options) is True
    assert Sandbox.delete_snapshot(snapshot.snapshot_id, **options) is False


def test_kill_ends_what_runs(sandbox: Sandbox, options: Options) -> None:
    command = sandbox.commands.run("sleep 60", background=True)
    assert sandbox.kill() is True
    with pytest.raises(TimeoutException) as ended:
        command.wait()
    assert "killed" in str(ended.value)
    assert Sandbox.kill(sandbox.sandbox_id, **options) is False
    assert not sandbox.is_running()


def test_network_is_updated_within_the_policy(sandbox: Sandbox) -> None:
    sandbox.update_network({"deny_out": ["8.8.8.8"]})
    assert sandbox.get_info().network["deny_out"] == ["8.8.8.8/32"]
    with pytest.raises(Exception, match="does not allow"):
        sandbox.update_network({"allow_out": ["10.0.0.1"], "deny_out": ["0.0.0.0/0"]})


def test_a_port_over_http_and_websocket(options: Options, console: Server) -> None:
    sandbox = Sandbox.create("base", timeout=120, **options)
    try:
        sandbox.commands.run("python3 -m http.server 8123", background=True, cwd="/etc")
        port = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "8123"}
        token = {"e2b-traffic-access-token": sandbox.traffic_access_token or ""}
        url = f"{console.url}/hostname"
        assert httpx.get(url, headers=port).status_code == 403
        answer = eventually(
            lambda: (r := httpx.get(url, headers={**port, **token})).status_code == 200 and r
        )
        assert answer.text.strip() == sandbox.commands.run("hostname").stdout.strip()
        closed = httpx.get(url, headers={**port, **token, "E2b-Sandbox-Port": "8124"})
        assert (closed.status_code, closed.json()["port"]) == (502, 8124)
        # Its server refuses the handshake: the refusal comes through.
        with pytest.raises(Exception, match=r"403|502|rejected|close"):
            websocket(url.replace("http", "ws"), additional_headers={**port, **token}).recv()
    finally:
        sandbox.kill()


async def test_the_async_sdk_watches_by_stream(options: Options) -> None:
    sandbox = await AsyncSandbox.create("base", timeout=60, **options)
    try:
        events: list[str] = []
        await sandbox.files.make_dir("w")
        handle = await sandbox.files.watch_dir("w", on_event=lambda e: events.append(e.name))
        await sandbox.files.write("w/streamed", "1")
        assert (await sandbox.commands.run("cat w/streamed")).stdout == "1"
        await handle.stop()
        assert "streamed" in events
    finally:
        await sandbox.kill()
