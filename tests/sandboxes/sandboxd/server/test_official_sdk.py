"""The official E2B SDK as an independent witness, over TCP. Everything is passed explicitly, so that
nothing of the environment leaks in. Its transport does not survive a fork: none happens here."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
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

from tests.sandboxes import daemon as daemons

pytestmark = pytest.mark.sandbox

Options = dict[str, Any]
T = Any


@pytest.fixture(scope="module")
def options() -> Iterator[Options]:
    if reason := daemons.why_not():
        pytest.skip(reason)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with daemons.start(tcp_port=port) as daemon:
        url = f"http://127.0.0.1:{port}"
        yield {"api_url": url, "sandbox_url": url, "api_key": daemon.api_key, "domain": "e2b.test"}


@pytest.fixture
def sandbox(options: Options) -> Iterator[Sandbox]:
    created = Sandbox.create("base", timeout=120, metadata={"suite": "official"}, **options)
    yield created
    created.kill()


def eventually(condition: Callable[[], T], timeout_s: float = 10.0) -> T:
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.05)
    return found


def test_run_and_exit_codes(sandbox: Sandbox) -> None:
    result = sandbox.commands.run('echo "$A"; echo oops >&2', envs={"A": "b"}, cwd="/tmp")
    assert (result.stdout, result.stderr, result.exit_code) == ("b\n", "oops\n", 0)
    with pytest.raises(CommandExitException) as failed:
        sandbox.commands.run("exit 3")
    assert failed.value.exit_code == 3
    assert sandbox.commands.run("id -un", user="root").stdout == "root\n"
    with pytest.raises(TimeoutException):
        sandbox.commands.run("sleep 60", timeout=1)


def test_background_stdin_connect_list_and_kill(sandbox: Sandbox) -> None:
    command = sandbox.commands.run("cat", background=True, stdin=True)
    assert command.pid in [process.pid for process in sandbox.commands.list()]
    other = sandbox.commands.connect(command.pid)
    sandbox.commands.send_stdin(command.pid, "hello")
    sandbox.commands.close_stdin(command.pid)
    assert other.wait().stdout == "hello"

    sleeper = sandbox.commands.run("sleep 60", background=True)
    assert sandbox.commands.kill(sleeper.pid) is True
    assert sandbox.commands.kill(sleeper.pid) is False
    with pytest.raises(CommandExitException):
        sleeper.wait()


def test_files_in_every_form(sandbox: Sandbox) -> None:
    files = sandbox.files
    info = files.write("notes/ü.txt", "text", metadata={"author": "me"})
    assert (info.path, info.metadata) == ("/home/user/notes/ü.txt", {"author": "me"})
    assert files.read("notes/ü.txt") == "text"
    files.write("raw", b"\x00\xff", use_octet_stream=True)
    assert bytes(files.read("raw", format="bytes")) == b"\x00\xff"
    files.write("zipped", "z" * 10_000, gzip=True)
    assert files.read("zipped", gzip=True) == "z" * 10_000
    assert files.make_dir("d/e") is True
    assert files.make_dir("d/e") is False
    assert [entry.name for entry in files.list("notes")] == ["ü.txt"]
    files.rename("raw", "d/renamed")
    assert files.exists("d/renamed")
    files.remove("d")
    assert not files.exists("d")


def test_signed_urls_work_bare(sandbox: Sandbox) -> None:
    url = sandbox.upload_url("signed.txt")
    assert httpx.post(url, files={"file": ("signed.txt", b"by url")}).status_code == 200
    got = httpx.get(sandbox.download_url("signed.txt", use_signature_expiration=60))
    assert got.content == b"by url"


def test_watch(sandbox: Sandbox) -> None:
    sandbox.files.make_dir("w")
    handle = sandbox.files.watch_dir("w")
    sandbox.files.write("w/a", "1")
    seen: list[Any] = []

    def written() -> bool:
        seen.extend(handle.get_new_events())
        return any(event.type.value == "write" and event.name == "a" for event in seen)

    eventually(written)
    handle.stop()


def test_pty(sandbox: Sandbox) -> None:
    output = bytearray()
    terminal = sandbox.pty.create(PtySize(rows=24, cols=80), envs={"A": "42"})
    sandbox.pty.resize(terminal.pid, PtySize(rows=30, cols=100))
    sandbox.pty.send_stdin(terminal.pid, b"stty size; echo got-$A; exit\n")
    terminal.wait(on_pty=output.extend)
    assert b"30 100" in output
    assert b"got-42" in output


def test_pause_keeps_memory_and_connect_resumes(sandbox: Sandbox, options: Options) -> None:
    script = "i=0; while :; do echo $((i+=1)) > /tmp/n; sleep 0.05; done"
    counter = sandbox.commands.run(script, background=True)
    before = int(eventually(lambda: sandbox.commands.run("cat /tmp/n || true").stdout.strip()))
    assert sandbox.pause()
    assert not sandbox.pause()
    assert not sandbox.is_running()
    assert sandbox.get_info().state is SandboxState.PAUSED

    again = Sandbox.connect(sandbox.sandbox_id, timeout=100, **options)
    assert again.is_running()
    eventually(lambda: int(again.commands.run("cat /tmp/n").stdout.strip() or 0) > before)
    counter.kill()


def test_list_info_timeout_and_metrics(sandbox: Sandbox, options: Options) -> None:
    query = SandboxQuery(metadata={"suite": "official"}, state=[SandboxState.RUNNING])
    listed = Sandbox.list(query=query, **options).next_items()
    assert sandbox.sandbox_id in [item.sandbox_id for item in listed]
    sandbox.set_timeout(30)
    info = sandbox.get_info()
    assert info.metadata == {"suite": "official"}
    assert 0 < (info.end_at - datetime.now(UTC)).total_seconds() <= 30
    metrics = eventually(sandbox.get_metrics)
    assert metrics[0].mem_total > 0


def test_snapshot_and_create_from_it(sandbox: Sandbox, options: Options) -> None:
    sandbox.files.write("kept", "before")
    snapshot = sandbox.create_snapshot(name="official-sdk")
    sandbox.files.write("kept", "after")
    copy = Sandbox.create(snapshot.snapshot_id, **options)
    try:
        assert copy.files.read("kept") == "before"
    finally:
        copy.kill()
    found = Sandbox.list_snapshots(sandbox_id=sandbox.sandbox_id, **options).next_items()
    assert [item.snapshot_id for item in found] == [snapshot.snapshot_id]
    assert Sandbox.delete_snapshot(snapshot.snapshot_id, **options) is True
    assert Sandbox.delete_snapshot(snapshot.snapshot_id, **options) is False


def test_kill_ends_what_runs_in_it(sandbox: Sandbox, options: Options) -> None:
    command = sandbox.commands.run("sleep 60", background=True)
    assert sandbox.kill() is True
    with pytest.raises(TimeoutException) as ended:
        command.wait()
    assert "killed" in str(ended.value)
    assert Sandbox.kill(sandbox.sandbox_id, **options) is False


async def test_the_async_sdk_watches_by_stream(options: Options) -> None:
    sandbox = await AsyncSandbox.create("base", timeout=60, **options)
    try:
        events: list[str] = []
        await sandbox.files.make_dir("w")
        handle = await sandbox.files.watch_dir("w", on_event=lambda e: events.append(e.name))
        await sandbox.files.write("w/streamed", "1")
        result = await sandbox.commands.run("cat w/streamed")
        assert result.stdout == "1"
        await handle.stop()
        assert "streamed" in events
    finally:
        await sandbox.kill()
