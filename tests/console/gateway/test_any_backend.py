"""One client, whatever stands behind the space: a server elsewhere with a key of its own, and an engine that
can't pause."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from e2b import Sandbox, SandboxState

from tests.console.api.server import Server, start
from tests.console.gateway.conftest import DOMAIN
from tests.console.gateway.test_official_sdk import eventually
from tests.sandboxes import daemon as daemons
from tests.sandboxes import dockerd as dockerds

Options = dict[str, Any]


@contextmanager
def console_before(
    folder: Path, redis_socket: str, provider: str, values: dict[str, Any]
) -> Iterator[tuple[Server, Options]]:
    with start(
        folder,
        redis_socket=redis_socket,
        sandboxd_socket="/nowhere.sock",
        TESTED_BACKEND=json.dumps({"provider": provider, "values": values}),
    ) as server:
        yield (
            server,
            {
                "api_url": server.url,
                "sandbox_url": server.url,
                "api_key": server.facts["keys"]["e2b"],
                "domain": DOMAIN,
            },
        )


def try_out(options: Options) -> None:
    """What a client does with any of them."""
    with Sandbox.create("base", timeout=120, metadata={"a": "b"}, **options) as sandbox:
        assert sandbox.commands.run("echo hi").stdout == "hi\n"
        sandbox.files.write("d/f", "text")
        assert sandbox.files.read("d/f") == "text"
        listed = Sandbox.list(**options).next_items()
        assert [item.sandbox_id for item in listed] == [sandbox.sandbox_id]
        snapshot = sandbox.create_snapshot(name="kept")
        with Sandbox.create("kept", timeout=60, **options) as copy:
            assert copy.files.read("d/f") == "text"
        assert Sandbox.delete_snapshot(snapshot.snapshot_id, **options)

        sandbox.commands.run("python3 -m http.server 8123", background=True, cwd="/etc")
        headers = {
            "E2b-Sandbox-Id": sandbox.sandbox_id,
            "E2b-Sandbox-Port": "8123",
            "e2b-traffic-access-token": sandbox.traffic_access_token or "",
        }
        url = f"{options['api_url']}/hostname"
        eventually(lambda: httpx.get(url, headers=headers).status_code == 200)


@pytest.mark.sandbox
def test_a_server_elsewhere(redis_socket: str, tmp_path: Path) -> None:
    if reason := daemons.why_not():
        pytest.skip(reason)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with daemons.start(tcp_port=port) as daemon:
        url = f"http://{daemon.tcp}"
        values = {"api_url": url, "sandbox_url": url, "api_key": daemon.api_key}
        values |= {"allow_private": True}
        with console_before(tmp_path, redis_socket, "e2b", values) as (server, options):
            try_out(options)
            # The backend's key is the console's own matter: a client's is no key there.
            theirs = {"X-API-Key": options["api_key"]}
            assert httpx.get(f"{url}/v2/sandboxes", headers=theirs).status_code == 401
            ours = httpx.get(f"{server.url}/v2/sandboxes", headers={"X-API-Key": daemon.api_key})
            assert ours.status_code == 401


@pytest.mark.docker
@pytest.mark.slow
def test_an_engine_that_cannot_pause(redis_socket: str, tmp_path: Path) -> None:
    if reason := dockerds.why_not() or daemons.why_not():
        pytest.skip(reason)
    with (
        dockerds.start() as dockerd,
        daemons.start(options=("--engine", "docker", "--docker-host", dockerd.url)) as daemon,
        console_before(tmp_path, redis_socket, "docker", {"socket": str(daemon.socket)}) as (
            server,
            options,
        ),
    ):
        try_out(options)

        told = httpx.get(
            f"{server.url}/sandboxd/engine", headers={"X-API-Key": options["api_key"]}
        ).json()
        assert told["capabilities"]["pause"] is False
        assert told["notes"]["pause"]

        # Asked to be paused when idle, it is ended instead, and says so.
        lifecycle = {"on_timeout": "pause", "auto_resume": True}
        sandbox = Sandbox.create("base", timeout=60, lifecycle=lifecycle, **options)
        info = sandbox.get_info()
        assert info.state is SandboxState.RUNNING
        assert info.lifecycle is not None
        assert info.lifecycle["on_timeout"] == "kill"
        with pytest.raises(Exception, match="501"):
            sandbox.pause()
        assert sandbox.is_running()
        sandbox.set_timeout(0)
        eventually(lambda: not sandbox.is_running())
        assert Sandbox.kill(sandbox.sandbox_id, **options) is False
