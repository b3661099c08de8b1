"""Clients that were generated from envd's definitions and write protobuf, as those for Go do."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from e2b.envd.filesystem import filesystem_pb as fs
from e2b.envd.filesystem.filesystem_connect import FilesystemClient
from e2b.envd.process import process_pb as ps
from e2b.envd.process.process_connect import ProcessClient

from sandboxes.sandboxd.routes.envd import Envd
from sandboxes.wire import proto
from tests.sandboxes.daemon import Daemon
from tests.sandboxes.sandboxd.server.scripted import ScriptedEngine

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def url(sandboxd_on_tcp: Daemon) -> str:
    return f"http://{sandboxd_on_tcp.tcp}"


@pytest.fixture(scope="module")
async def headers(sandboxd_on_tcp: Daemon, url: str) -> AsyncIterator[dict[str, str]]:
    key = {"X-API-Key": sandboxd_on_tcp.api_key}
    async with httpx.AsyncClient(base_url=url, headers=key, timeout=60) as http:
        made = (await http.post("/v2/sandboxes", json={"templateID": "base"})).json()
        yield {
            "E2b-Sandbox-Id": made["sandboxID"],
            "E2b-Sandbox-Port": "49983",
            "X-Access-Token": made["envdAccessToken"],
        }
        await http.delete(f"/sandboxes/{made['sandboxID']}")


@pytest.fixture
def processes(url: str) -> ProcessClient:
    return ProcessClient(url, send_compression=None, accept_compression=())


def test_every_method_has_its_schemas() -> None:
    assert set(proto.METHODS) == set(Envd(ScriptedEngine())._rpc)


async def test_a_command_streams(processes: ProcessClient, headers: dict[str, str]) -> None:
    script = 'printf "$A"; printf oops >&2; exit 3'
    config = ps.ProcessConfig(cmd="/bin/bash", args=["-c", script], envs={"A": "ü"}, cwd="/tmp")
    stdout, end = b"", None
    async for reply in processes.start(
        ps.StartRequest(process=config, stdin=False), headers=headers
    ):
        assert reply.event is not None
        event: Any = reply.event.event
        if event.field == "data" and event.value.output.field == "stdout":
            stdout += event.value.output.value
        elif event.field == "end":
            end = event.value
    assert stdout == "ü".encode()
    assert end is not None
    assert (end.exit_code, end.exited, end.status) == (3, True, "exit status 3")


async def test_input_and_signals(processes: ProcessClient, headers: dict[str, str]) -> None:
    config = ps.ProcessConfig(cmd="cat")
    stream = processes.start(ps.StartRequest(process=config, tag="echo"), headers=headers)
    events: list[Any] = []
    async for reply in stream:
        events.append(reply.event.event)  # type: ignore[union-attr]
        if events[-1].field == "start":
            chosen = ps.ProcessSelector.from_json('{"tag": "echo"}')
            written = ps.SendInputRequest(process=chosen)
            written.input = ps.ProcessInput.from_json('{"stdin": "YWJj"}')
            await processes.send_input(written, headers=headers)
        elif events[-1].field == "data":
            killed = ps.SendSignalRequest(process=chosen, signal=ps.Signal.SIGKILL)
            await processes.send_signal(killed, headers=headers)
    assert [event.field for event in events] == ["start", "data", "end"]
    assert events[-1].value.exit_code == -1
    assert (await processes.list(ps.ListRequest(), headers=headers)).processes == []


async def test_files_and_watches(url: str, headers: dict[str, str]) -> None:
    files = FilesystemClient(url, send_compression=None, accept_compression=())
    made = await files.make_dir(fs.MakeDirRequest(path="d"), headers=headers)
    assert made.entry is not None
    assert (made.entry.path, made.entry.type) == ("/home/user/d", fs.FileType.DIRECTORY)
    assert made.entry.modified_time is not None
    with pytest.raises(ConnectError) as refused:
        await files.stat(fs.StatRequest(path="nowhere"), headers=headers)
    assert refused.value.code is Code.NOT_FOUND

    names: list[str] = []
    async with asyncio.timeout(20):
        async for reply in files.watch_dir(fs.WatchDirRequest(path="d"), headers=headers):
            event: Any = reply.event
            if event.field == "start":
                await files.make_dir(fs.MakeDirRequest(path="d/seen"), headers=headers)
            elif event.field == "filesystem":
                names.append(event.value.name)
                break
    assert names == ["seen"]
    listed = await files.list_dir(fs.ListDirRequest(path=".", depth=2), headers=headers)
    assert {"d", "seen"} <= {entry.name for entry in listed.entries}


async def test_compressed_messages(url: str, headers: dict[str, str]) -> None:
    """As a client for Python sends them if it is not told otherwise."""
    processes = ProcessClient(url)
    config = ps.ProcessConfig(cmd="/bin/echo", args=["x" * 10_000])
    output = b""
    async for reply in processes.start(
        ps.StartRequest(process=config, stdin=False), headers=headers
    ):
        event: Any = reply.event.event  # type: ignore[union-attr]
        if event.field == "data":
            output += event.value.output.value
    assert output == b"x" * 10_000 + b"\n"
    listed = await FilesystemClient(url).list_dir(fs.ListDirRequest(path="/"), headers=headers)
    assert "etc" in [entry.name for entry in listed.entries]


async def test_what_is_no_message_is_refused(url: str, headers: dict[str, str]) -> None:
    async with httpx.AsyncClient(base_url=url, headers=headers) as http:
        broken = await http.post(
            "/filesystem.Filesystem/Stat",
            content=b"\x0a\xff",
            headers={"Content-Type": "application/proto"},
        )
        assert (broken.status_code, broken.json()["code"]) == (400, "invalid_argument")
        for content in (b"no gzip", gzip.compress(b"x" * 100)[:-8], gzip.compress(bytes(65 << 20))):
            packed = await http.post(
                "/filesystem.Filesystem/Stat",
                content=content,
                headers={"Content-Type": "application/proto", "Content-Encoding": "gzip"},
            )
            assert packed.status_code in (400, 429), content[:20]
        brotli = await http.post(
            "/filesystem.Filesystem/Stat",
            content=b"",
            headers={"Content-Type": "application/proto", "Content-Encoding": "br"},
        )
        assert brotli.status_code == 415
        unknown = await http.post(
            "/filesystem.Filesystem/Stat", content=b"", headers={"Content-Type": "text/plain"}
        )
        assert unknown.status_code == 415
        assert "application/proto" in unknown.headers["accept-post"]
