"""Routes and streams that everyday use of the SDK leaves out: `test_every_route_is_driven.py` has the table."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from e2b import AsyncSandbox, PtySize, Sandbox

from sandboxes.wire.connect import FrameDecoder, encode_message
from sandboxes.wire.server.unsupported import unsupported_routes
from tests.console.api.server import Server
from tests.console.gateway.test_official_sdk import eventually

pytestmark = pytest.mark.sandbox

Options = dict[str, Any]


@pytest.fixture(scope="module")
def sandbox(options: Options) -> Iterator[Sandbox]:
    with Sandbox.create("base", timeout=300, envs={"SET": "at create"}, **options) as created:
        yield created


@pytest.fixture(scope="module")
def control(console: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=console.url, headers=console.headers("e2b"), timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def envd(console: Server, sandbox: Sandbox) -> Iterator[httpx.Client]:
    """The data plane of the sandbox, by hand."""
    headers = {
        "E2b-Sandbox-Id": sandbox.sandbox_id,
        "E2b-Sandbox-Port": "49983",
        "X-Access-Token": sandbox._envd_access_token or "",
    }
    with httpx.Client(base_url=console.url, headers=headers, timeout=60) as client:
        yield client


# Processes


def test_input_as_a_stream_and_its_end(sandbox: Sandbox) -> None:
    command = sandbox.commands.run("cat; echo end", background=True, stdin=True)
    sandbox.commands.stream_input(command.pid, iter([b"one ", b"two ", "ü\n".encode()]))
    sandbox.commands.close_stdin(command.pid)
    result = command.wait()
    assert result.stdout == "one two ü\nend\n"
    with pytest.raises(Exception, match=r"not found|no process|does not exist"):
        sandbox.commands.close_stdin(command.pid)


def test_a_signal_that_a_program_may_catch(sandbox: Sandbox, envd: httpx.Client) -> None:
    script = "trap 'echo caught; exit 7' TERM; echo ready; while true; do sleep 0.05; done"
    command = sandbox.commands.run(script, background=True)
    assert next(iter(command))[0] == "ready\n"
    sent = envd.post(
        "/process.Process/SendSignal",
        json={"process": {"pid": command.pid}, "signal": "SIGNAL_SIGTERM"},
    )
    assert sent.status_code == 200
    with pytest.raises(Exception, match="7"):
        command.wait()
    refused = envd.post(
        "/process.Process/SendSignal",
        json={"process": {"pid": command.pid}, "signal": "SIGNAL_SIGTERM"},
    )
    assert (refused.status_code, refused.json()["code"]) == (404, "not_found")


def test_a_terminal_is_resized_left_and_taken_up_again(sandbox: Sandbox) -> None:
    output = bytearray()
    terminal = sandbox.pty.create(PtySize(rows=24, cols=80))
    sandbox.pty.send_stdin(terminal.pid, b"export KEPT=yes\n")
    terminal.disconnect()
    again = sandbox.pty.connect(terminal.pid)
    sandbox.pty.resize(again.pid, PtySize(rows=40, cols=120))
    sandbox.pty.stream_input(again.pid, iter([b"stty size; ", b"echo kept-$KEPT; exit\n"]))
    again.wait(on_pty=output.extend)
    assert b"40 120" in output
    assert b"kept-yes" in output
    other = sandbox.pty.create(PtySize(rows=24, cols=80))
    assert [sandbox.pty.kill(other.pid), sandbox.pty.kill(other.pid)] == [True, False]


def test_keepalives_come_through(envd: httpx.Client) -> None:
    start = {"process": {"cmd": "sleep", "args": ["3"]}, "stdin": False}
    headers = {"Content-Type": "application/connect+json", "Keepalive-Ping-Interval": "1"}
    kinds: list[str] = []
    with envd.stream(
        "POST", "/process.Process/Start", headers=headers, content=encode_message(start)
    ) as stream:
        decoder = FrameDecoder()
        for data in stream.iter_raw():
            kinds += [next(iter(f.message["event"])) for f in decoder.feed(data) if not f.end]
    assert kinds[0] == "start"
    assert kinds[-1] == "end"
    assert "keepalive" in kinds


# Files


def test_many_files_in_one_upload(sandbox: Sandbox) -> None:
    entries = [{"path": f"many/{n}.txt", "data": f"file {n}"} for n in range(20)]
    written = sandbox.files.write_files([*entries, {"path": "/tmp/ab/ü.bin", "data": b"\x00"}])  # type: ignore[list-item]
    assert [info.path for info in written][-1] == "/tmp/ab/ü.bin"
    assert len(sandbox.files.list("many")) == 20
    assert sandbox.files.read("many/7.txt") == "file 7"


def test_compressed_uploads_and_downloads(sandbox: Sandbox, envd: httpx.Client) -> None:
    text = "line of text\n" * 20_000
    sent = envd.post(
        "/files",
        params={"path": "zipped.txt"},
        content=gzip.compress(text.encode()),
        headers={"Content-Encoding": "gzip", "Content-Type": "application/octet-stream"},
    )
    assert sent.status_code == 200, sent.text
    with envd.stream(
        "GET", "/files", params={"path": "zipped.txt"}, headers={"Accept-Encoding": "gzip"}
    ) as answer:
        assert answer.headers["content-encoding"] == "gzip"
        raw = b"".join(answer.iter_raw())
    assert len(raw) < len(text) / 10
    assert gzip.decompress(raw).decode() == text
    plain = envd.get(
        "/files", params={"path": "zipped.txt"}, headers={"Accept-Encoding": "identity"}
    )
    assert "content-encoding" not in plain.headers
    assert plain.text == text


def test_parts_of_a_file_and_its_head(sandbox: Sandbox, envd: httpx.Client) -> None:
    sandbox.files.write("digits", "0123456789")
    part = envd.get("/files", params={"path": "digits"}, headers={"Range": "bytes=2-4"})
    assert (part.status_code, part.text) == (206, "234")
    assert envd.get("/files", params={"path": "nowhere"}).status_code == 404
    assert envd.get("/files", params={"path": "."}).status_code == 400
    assert envd.get("/files", params={"path": "digits", "username": "nobody-here"}).status_code in (
        400,
        401,
    )


def test_a_large_file_is_streamed_both_ways(sandbox: Sandbox) -> None:
    size = 24 * 1024 * 1024
    sandbox.commands.run(f"head -c {size} /dev/urandom > big; sha256sum big > sum")
    seen = 0
    with open("/dev/null", "wb") as sink:
        for chunk in sandbox.files.read("big", format="stream"):
            seen += len(chunk)
            sink.write(chunk)
    assert seen == size
    assert sandbox.commands.run("sha256sum -c sum").exit_code == 0


def test_files_are_joined(sandbox: Sandbox, envd: httpx.Client) -> None:
    sandbox.files.write_files(
        [{"path": "part-1", "data": "one "}, {"path": "part-2", "data": "two"}]
    )
    joined = envd.post(
        "/files/compose", json={"source_paths": ["part-1", "part-2"], "destination": "whole"}
    )
    assert joined.status_code == 200, joined.text
    assert sandbox.files.read("whole") == "one two"
    assert not sandbox.files.exists("part-1")


def test_deep_watches_by_polling(sandbox: Sandbox) -> None:
    sandbox.files.make_dir("deep/er")
    handle = sandbox.files.watch_dir("deep", recursive=True)
    sandbox.files.write("deep/er/file", "1")
    sandbox.files.remove("deep/er/file")
    seen: list[tuple[str, str]] = []

    def removed() -> bool:
        seen.extend((event.type.value, event.name) for event in handle.get_new_events())
        return ("remove", "er/file") in seen

    eventually(removed)
    assert ("create", "er/file") in seen
    handle.stop()
    with pytest.raises(Exception, match=r"stopped|not found"):
        handle.get_new_events()


def test_what_envd_tells_of_itself(sandbox: Sandbox, envd: httpx.Client) -> None:
    assert envd.get("/envs").json()["SET"] == "at create"
    usage = envd.get("/metrics").json()
    assert usage["mem_total"] > 0
    assert envd.put("/files").status_code == 405
    assert envd.get("/freeze").status_code == 404


# Control plane


def test_metrics_of_one_and_of_many(sandbox: Sandbox, control: httpx.Client) -> None:
    samples = eventually(sandbox.get_metrics)
    assert samples[0].cpu_count > 0
    before = datetime.now(UTC) - timedelta(hours=2)
    assert sandbox.get_metrics(start=before - timedelta(hours=1), end=before) == []
    ids = f"{sandbox.sandbox_id},{'a' * 20}"
    many = control.get("/sandboxes/metrics", params={"sandbox_ids": ids}).json()["sandboxes"]
    assert set(many) == {sandbox.sandbox_id}
    assert control.get("/sandboxes/metrics").status_code == 400


def test_a_refresh_extends_and_never_shortens(sandbox: Sandbox, control: httpx.Client) -> None:
    path = f"/sandboxes/{sandbox.sandbox_id}"
    sandbox.set_timeout(60)
    assert control.post(f"{path}/refreshes", json={"duration": 600}).status_code == 204
    extended = sandbox.get_info().end_at
    assert extended - datetime.now(UTC) > timedelta(seconds=500)
    assert control.post(f"{path}/refreshes", json={"duration": 10}).status_code == 204
    assert sandbox.get_info().end_at >= extended
    for bad in (-1, "x", 10**9):
        assert control.post(f"{path}/refreshes", json={"duration": bad}).status_code == 400
        assert control.post(f"{path}/timeout", json={"timeout": bad}).status_code == 400


def test_snapshots_have_pages_and_names(
    sandbox: Sandbox, control: httpx.Client, options: Options
) -> None:
    made = [sandbox.create_snapshot(name=f"page-{n}").snapshot_id for n in range(3)]
    try:
        pages = Sandbox.list_snapshots(sandbox_id=sandbox.sandbox_id, limit=2, **options)
        first, second = pages.next_items(), pages.next_items()
        assert [item.snapshot_id for item in (*first, *second)] == made[::-1]
        assert not pages.has_next
        named = control.get("/snapshots", params={"name": "page-1"}).json()
        assert [item["snapshotID"] for item in named] == [made[1]]
        assert control.get("/snapshots", params={"limit": "0"}).status_code == 400
        assert control.get("/snapshots", params={"nextToken": "x"}).status_code == 400
        taken = control.post(f"/sandboxes/{sandbox.sandbox_id}/snapshots", json={"name": "base"})
        assert taken.status_code == 400
        # By name and tag, quoted as one segment, as SDKs do it.
        assert control.delete("/templates/me%2Fpage-0%3Adefault").status_code == 204
        assert control.delete("/templates/me%2Fpage-0%3Adefault").status_code == 404
    finally:
        deleted = [Sandbox.delete_snapshot(snapshot_id, **options) for snapshot_id in made]
    assert deleted == [False, True, True]


def test_templates_and_capabilities(control: httpx.Client) -> None:
    paged = control.get("/v2/templates", params={"limit": 1})
    assert len(paged.json()) == 1
    told = control.get("/sandboxd/engine").json()
    assert told["engine"] == "gateway"
    assert told["capabilities"]["files"] is True
    assert told["capabilities"]["template_builds"] is False


def test_what_is_not_offered_says_so(control: httpx.Client, sandbox: Sandbox) -> None:
    for route in unsupported_routes():
        path = route.path.replace("{id}", sandbox.sandbox_id)
        path = path.replace("{build:path}", "b/status").replace("{rest:path}", "r")
        path = path.replace("{hash}", "h")
        for method in sorted((route.methods or set()) - {"HEAD"}):
            answer = control.request(method, path, content=json.dumps({}))
            assert answer.status_code == 501, (method, path, answer.text)
            assert answer.headers["should-retry"] == "false"
            assert answer.json()["message"]
    assert control.get("/sandboxes/x/nothing").status_code == 404
    assert control.put("/v2/sandboxes").status_code == 405


async def test_the_async_sdk_streams_input(options: Options, sandbox: Sandbox) -> None:
    mine = await AsyncSandbox.connect(sandbox.sandbox_id, **options)
    command = await mine.commands.run("cat", background=True, stdin=True)
    async with mine.commands.stream_input(command.pid) as pipe:
        for part in ("a", b"b", "ü"):
            await pipe.send(part)
    await mine.commands.close_stdin(command.pid)
    assert (await command.wait()).stdout == "abü"
