"""The daemon as a process: its socket, its key, its refusals, and what a restart keeps."""

from __future__ import annotations

import argparse
import asyncio
import grp
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from sandboxes.errors import InvalidRequest
from sandboxes.sandboxd.serve import listen_unix, serve
from tests.sandboxes import daemon as daemons
from tests.sandboxes.sandboxd.server.raw import RawSandbox


def test_the_socket_is_for_us_and_our_group(tmp_path: Path) -> None:
    path = tmp_path / "run" / "s.sock"
    group = grp.getgrgid(os.getgid()).gr_name
    with listen_unix(path, group):
        status = path.stat()
        assert stat.S_IMODE(status.st_mode) == 0o660
        assert status.st_gid == os.getgid()
    assert not path.exists()


def test_a_dead_daemons_socket_is_replaced_a_live_ones_is_not(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with listen_unix(path, None):
        with pytest.raises(InvalidRequest, match="already answers"):
            with listen_unix(path, None):
                pass
        assert path.exists()


def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("precious")
    with pytest.raises(InvalidRequest, match="is no socket"):
        with listen_unix(path, None):
            pass
    assert path.read_text() == "precious"


def test_an_unknown_group_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no-such-group"):
        with listen_unix(tmp_path / "s.sock", "no-such-group"):
            pass


@pytest.mark.parametrize(
    ("key", "message"),
    [(None, "--api-key-file"), ("", "is empty"), ("missing", "cannot be read")],
)
async def test_tcp_needs_a_key(tmp_path: Path, key: str | None, message: str) -> None:
    file = None if key is None else tmp_path / "key"
    if file is not None and key == "":
        file.write_text("")
    args = argparse.Namespace(tcp="127.0.0.1:0", api_key_file=file, data_dir=tmp_path)
    with pytest.raises(InvalidRequest, match=message):
        await serve(args)


def test_a_refusal_is_one_sentence_and_a_status(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "sandboxes.sandboxd", "serve", "--tcp", "x"]
    done = subprocess.run(
        [*argv, "--data-dir", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "--api-key-file" in done.stderr


@pytest.mark.sandbox
async def test_sandboxes_outlive_a_restart(tmp_path: Path) -> None:
    if reason := daemons.why_not():
        pytest.skip(reason)
    with daemons.start() as first:
        again = [sys.executable, "-m", "sandboxes.sandboxd", "serve"]
        again += ["--data-dir", str(first.data_dir), "--socket", str(first.socket)]
        async with client(first.socket) as http:
            reply = await http.post("/v2/sandboxes", json={"templateID": "base", "timeout": 60})
            sandbox = RawSandbox(http, reply.json())
            script = "echo kept > f; setsid sleep 61.5 >/dev/null 2>&1 &"
            assert (await sandbox.sh(script)).error is None
            stream = asyncio.ensure_future(sandbox.sh("sleep 62.5"))
            await asyncio.sleep(0.3)
            await asyncio.to_thread(first.stop)
            with pytest.raises(httpx.HTTPError):
                await stream
        second = await asyncio.create_subprocess_exec(*again, stderr=subprocess.DEVNULL)
        try:
            async with client(first.socket) as http:
                sandbox.http = http
                await answers(http)
                assert (await sandbox.sh("cat f; pgrep -cf '[s]leep 61.5'")).stdout == b"kept\n1\n"
                assert (await http.delete(f"/sandboxes/{sandbox.id}")).status_code == 204
        finally:
            second.terminate()
            await second.wait()


def client(path: Path) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(uds=str(path))
    return httpx.AsyncClient(transport=transport, base_url="http://sandboxd", timeout=30)


async def answers(http: httpx.AsyncClient) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                await http.get("/sandboxd/health")
            except httpx.ConnectError:
                await asyncio.sleep(0.05)
            else:
                return
