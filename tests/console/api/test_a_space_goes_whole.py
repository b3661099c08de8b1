"""A space with a real session and a real release is deleted over REST by workers of which one is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.console.api import server as servers
from tests.sandboxes import daemon as daemons
from tests.sandboxes.sessions.world import RedisServer

pytestmark = [pytest.mark.sandbox, pytest.mark.slow, pytest.mark.timeout(240)]

GO_ON = "import django; django.setup(); from console.fleet.tasks import take_up_requests as t; t.delay()"


def at_daemon(socket: str, what: str, space: str) -> list[Any]:
    """What sandboxd itself has of this space."""
    with httpx.Client(
        transport=httpx.HTTPTransport(uds=socket), base_url="http://sandboxd"
    ) as http:
        rows: list[Any] = http.get(what).json()
    return [row for row in rows if space in str(row)]


def until(found: Any, *, within_s: float = 90) -> None:
    end = time.monotonic() + within_s
    while not found():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_it_is_gone_with_all_that_was_in_it(tmp_path: Path, sandboxd: daemons.Daemon) -> None:
    (tmp_path / "redis").mkdir()
    redis = RedisServer(tmp_path / "redis")
    redis.start()
    socket = str(sandboxd.socket)
    places = {"redis_socket": redis.socket, "sandboxd_socket": socket}
    env = {**os.environ, **servers.environment(tmp_path, **places)}
    try:
        with (
            servers.start(tmp_path, TESTED_SKILL="1", **places) as server,
            httpx.Client(base_url=server.url, headers=server.headers(), timeout=60) as api,
        ):
            space = server.facts["space"]
            for name in ("one", "two", "three"):
                path = server.session(name)
                assert api.post(f"{path}/exec", json={"argv": ["true"]}).status_code == 200
            api.post(f"{server.session('one')}/inputs", files=[("files", ("a", b"x"))])
            api.post(f"{server.session('two')}/pause")
            assert len(at_daemon(socket, "/v2/sandboxes", space)) == 3

            refused = api.delete(f"/api/v1/spaces/{space}").json()["error"]["details"]
            assert refused["consequences"]["live_sessions"] == 3
            assert refused["consequences"]["releases"] == 1
            assert api.delete(f"/api/v1/spaces/{space}?confirm=lab").status_code == 202
            again = api.post(f"{server.session('four')}/resolve")
            assert again.status_code == 409

            with servers.worker(env) as first:
                # Killed as soon as it has begun.
                until(lambda: len(at_daemon(socket, "/v2/sandboxes", space)) < 3)
                first.kill()
                first.wait()
            assert api.get(f"/api/v1/spaces/{space}").status_code == 200
            # As the beat does each minute; the dead one's lease lapses first.
            lock = next(name for name in redis_keys(redis) if f"build:{{{space}}}:lock" in name)
            delete_key(redis, lock)
            with servers.worker(env):
                subprocess.run([sys.executable, "-c", GO_ON], env=env, check=True, timeout=60)
                until(lambda: api.get(f"/api/v1/spaces/{space}").status_code == 404)

            assert at_daemon(socket, "/v2/sandboxes", space) == []
            with httpx.Client(
                transport=httpx.HTTPTransport(uds=socket), base_url="http://sandboxd"
            ) as http:
                assert http.get("/snapshots").json() == []
            assert not [name for name in redis_keys(redis) if name.endswith(":binding")]
            media = list((tmp_path / "console").rglob("attachments/*/*"))
            assert media == []
            told = api.get("/api/v1/audit?action=space.deleted").json()["data"]
            assert [row["details"]["space"] for row in told] == [space]
    finally:
        redis.stop()
        clear(socket)


def clear(socket: str) -> None:
    """What a test that failed has left."""
    with httpx.Client(
        transport=httpx.HTTPTransport(uds=socket), base_url="http://sandboxd"
    ) as http:
        for row in http.get("/v2/sandboxes").json():
            http.delete(f"/sandboxes/{row['sandboxID']}")


def redis_keys(server: RedisServer) -> list[str]:
    from redis import Redis

    with Redis(unix_socket_path=server.socket) as redis:
        return [name.decode() for name in redis.keys("*")]


def delete_key(server: RedisServer, name: str) -> None:
    from redis import Redis

    with Redis(unix_socket_path=server.socket) as redis:
        redis.delete(name)
