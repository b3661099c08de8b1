"""What fails beneath the API is a 503 that says when to come again, and costs no session its sandbox."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.console.api import server as servers
from tests.sandboxes import daemon as daemons
from tests.sandboxes.sessions.world import RedisServer

pytestmark = [pytest.mark.sandbox, pytest.mark.slow]


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    (tmp_path / "redis").mkdir()
    server = RedisServer(tmp_path / "redis")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def own(
    tmp_path: Path, own_redis: RedisServer, sandboxd: daemons.Daemon
) -> Iterator[servers.Server]:
    with servers.start(
        tmp_path,
        redis_socket=own_redis.socket,
        sandboxd_socket=str(sandboxd.socket),
        SKILLYARD_API_RATE_EXEC="0.01,3",
        SKILLYARD_API_COMMANDS_PER_SPACE="2",
        SKILLYARD_API_RATE_WRONG_KEY="0.01,3",
    ) as server:
        yield server


@pytest.fixture
def caller(own: servers.Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=own.url, headers=own.headers(), timeout=30) as client:
        yield client
        if own.process.poll() is None:
            client.delete(own.session("s"))


def test_without_redis_nothing_is_made_and_the_sandbox_stays(
    own: servers.Server, own_redis: RedisServer, caller: httpx.Client
) -> None:
    resolve = f"{own.session('s')}/resolve"
    before = caller.post(resolve).json()["data"]["sandbox_id"]
    own_redis.kill()
    down = caller.post(resolve)
    own_redis.start()

    assert (down.status_code, down.json()["error"]["kind"]) == (503, "unavailable")
    assert int(down.headers["Retry-After"]) >= 1
    after = caller.post(resolve).json()["data"]
    assert (after["sandbox_id"], after["outcome"]) == (before, "connected")


def test_a_flushed_redis_gets_its_binding_back(
    own: servers.Server, own_redis: RedisServer, caller: httpx.Client
) -> None:
    from redis import Redis

    resolve = f"{own.session('s')}/resolve"
    before = caller.post(resolve).json()["data"]["sandbox_id"]
    with Redis(unix_socket_path=own_redis.socket) as redis:
        redis.flushall()
    after = caller.post(resolve).json()["data"]

    assert (after["sandbox_id"], after["outcome"]) == (before, "claimed")


def test_a_bound_session_resolves_without_the_database(
    own: servers.Server, tmp_path: Path, caller: httpx.Client
) -> None:
    resolve = f"{own.session('s')}/resolve"
    before = caller.post(resolve).json()["data"]["sandbox_id"]
    database = tmp_path / "console.sqlite3"
    for part in ("", "-wal", "-shm"):
        if Path(f"{database}{part}").exists():
            os.rename(f"{database}{part}", f"{database}{part}.away")
    sqlite3.connect(database).close()
    try:
        end = time.monotonic() + 7
        while time.monotonic() < end:
            answer = caller.post(resolve)
            assert answer.status_code == 200, answer.text
            assert answer.json()["data"]["sandbox_id"] == before
            time.sleep(0.5)
        down = caller.get("/api/v1/spaces")
        assert (down.status_code, down.json()["error"]["kind"]) == (503, "unavailable")
    finally:
        for part in ("", "-wal", "-shm"):
            if Path(f"{database}{part}.away").exists():
                os.rename(f"{database}{part}.away", f"{database}{part}")


def test_without_the_backend_the_binding_is_kept(
    own: servers.Server, sandboxd: daemons.Daemon, caller: httpx.Client
) -> None:
    resolve = f"{own.session('s')}/resolve"
    before = caller.post(resolve).json()["data"]["sandbox_id"]
    sandboxd.crash()
    try:
        down = caller.post(resolve)
        kept = caller.get(own.session("s")).json()["data"]
    finally:
        sandboxd.run()

    assert (down.status_code, down.json()["error"]["kind"]) == (503, "unavailable")
    assert (kept["bound"], kept["sandbox_id"]) == (True, before)
    assert caller.post(resolve).json()["data"]["sandbox_id"] == before


def test_a_web_process_killed_mid_command_leaves_the_session_usable(
    own: servers.Server,
    own_redis: RedisServer,
    sandboxd: daemons.Daemon,
    tmp_path: Path,
    caller: httpx.Client,
) -> None:
    path = own.session("s")
    before = caller.post(f"{path}/resolve").json()["data"]["sandbox_id"]
    wish = {"command": "echo on; sleep 300", "timeout_s": 600}
    with caller.stream(
        "POST", f"{path}/exec", json=wish, headers={"Accept": "text/event-stream"}
    ) as response:
        for line in response.iter_lines():
            if line == "event: stdout":
                break
        own.process.send_signal(signal.SIGKILL)
        own.process.wait()
    with (
        servers.again(
            own, tmp_path, redis_socket=own_redis.socket, sandboxd_socket=str(sandboxd.socket)
        ) as second,
        httpx.Client(base_url=second.url, headers=own.headers(), timeout=60) as later,
    ):
        # The dead process's lock on the session lapses first, if it held it.
        answer = later.post(f"{path}/exec", json={"argv": ["true"]})
        assert answer.status_code == 200, answer.text
        assert answer.json()["data"]["sandbox_id"] == before
        later.delete(path)


def test_too_often_and_too_much_at_once_are_refused(
    own: servers.Server, caller: httpx.Client
) -> None:
    path = f"{own.session('s')}/exec"
    events = {"Accept": "text/event-stream"}
    wish = {"command": "echo on; sleep 60"}
    with caller.stream("POST", path, json=wish, headers=events) as first:
        lines = first.iter_lines()
        next(lines)
        with caller.stream("POST", path, json=wish, headers=events) as second:
            more_lines = second.iter_lines()
            next(more_lines)
            full = caller.post(path, json={"argv": ["true"]})
    assert (full.status_code, full.json()["error"]["kind"]) == (429, "too_many_requests")
    assert "run in this space" in full.json()["error"]["message"]
    for _ in range(100):
        answer = caller.post(path, json={"argv": ["true"]})
        if "run in this space" not in answer.text:
            break
        time.sleep(0.05)
    assert answer.status_code == 200, answer.text
    often = caller.post(path, json={"argv": ["true"]})
    assert often.status_code == 429
    assert int(often.headers["Retry-After"]) > 10


def test_guessing_keys_is_slowed_down_and_good_keys_still_work(
    own: servers.Server, caller: httpx.Client
) -> None:
    assert caller.get("/api/v1/me").status_code == 200
    guesses = [
        httpx.get(f"{own.url}/api/v1/me", headers={"X-API-Key": f"sky_{n:040x}"}).status_code
        for n in range(6)
    ]

    assert guesses == [401, 401, 401, 429, 429, 429]
    assert caller.get("/api/v1/me").status_code == 200
