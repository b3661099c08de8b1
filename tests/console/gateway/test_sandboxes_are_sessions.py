"""What a client makes here is a session: seen in the console, kept by the reconciler, linked by name; and no
web process holds anything that another one needs."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import pytest
from e2b import Sandbox

from tests.console.api.server import Server
from tests.console.gateway.replicas import manage, web_process
from tests.sandboxes.daemon import Daemon

pytestmark = [pytest.mark.sandbox, pytest.mark.slow]


def row_of(console: Server, sandbox_id: str) -> tuple[str, str, str] | None:
    """(session id, state, who made it) of the sandbox's session."""
    with sqlite3.connect(console.log.parent / "console.sqlite3") as database:
        found: tuple[str, str, str] | None = database.execute(
            "SELECT session_id, state, created_by FROM fleet_session WHERE sandbox_id = ?",
            [sandbox_id],
        ).fetchone()
    return found


def actions(console: Server, target: str) -> list[str]:
    with sqlite3.connect(console.log.parent / "console.sqlite3") as database:
        found = database.execute(
            "SELECT action FROM audit_auditentry WHERE target = ? ORDER BY id", [target]
        ).fetchall()
    return [action for (action,) in found]


def test_a_session_by_name_or_by_itself(console: Server, options: dict[str, Any]) -> None:
    linked = Sandbox.create(timeout=60, metadata={"weknora_session_id": "talk-7"}, **options)
    session_id, state, made_by = row_of(console, linked.sandbox_id) or ("", "", "")
    assert (session_id, state) == ("talk-7", "active")
    assert made_by.startswith("gateway, key e2b_")

    again = Sandbox.create(timeout=60, metadata={"weknora_session_id": "talk-7"}, **options)
    assert (row_of(console, again.sandbox_id) or [""])[0].startswith("e2b_")
    with pytest.raises(Exception, match="has a sandbox already"):
        Sandbox.create(timeout=60, metadata={"skillyard_session": "talk-7"}, **options)

    linked.pause()
    assert (row_of(console, linked.sandbox_id) or ["", ""])[1] == "paused"
    for sandbox in (linked, again):
        assert sandbox.kill()
        assert (row_of(console, sandbox.sandbox_id) or ["", ""])[1] == "destroyed"
    assert actions(console, linked.sandbox_id) == ["sandbox.create", "sandbox.kill"]

    anew = Sandbox.create(timeout=60, metadata={"skillyard_session": "talk-7"}, **options)
    assert (row_of(console, anew.sandbox_id) or [""])[0] == "talk-7"
    assert anew.get_info().metadata == {"skillyard_session": "talk-7"}
    anew.kill()


def test_the_rest_interface_and_the_gateway_share_a_session(
    console: Server, options: dict[str, Any]
) -> None:
    made = Sandbox.create(timeout=60, metadata={"weknora_session_id": "shared"}, **options)
    made.files.write("/workspace/output/mine.txt", "by E2B")
    path = console.session("shared")
    resolved = httpx.post(
        f"{console.url}{path}/resolve", headers=console.headers(), json={}, timeout=60
    )
    assert resolved.status_code == 200, resolved.text
    assert made.sandbox_id in resolved.text
    made.kill()

    resolved = httpx.post(
        f"{console.url}{console.session('rest')}/resolve",
        headers=console.headers(),
        json={},
        timeout=60,
    )
    listed = Sandbox.list(**options).next_items()
    [theirs] = [item for item in listed if item.metadata.get("skillyard_session") == "rest"]
    sandbox = Sandbox.connect(theirs.sandbox_id, **options)
    assert sandbox.commands.run("echo hi").stdout == "hi\n"
    assert sandbox.kill()


def test_the_reconciler_keeps_them(
    console: Server, daemon: Daemon, redis_socket: str, options: dict[str, Any]
) -> None:
    kept = [
        Sandbox.create(timeout=120, **options),
        Sandbox.create(timeout=120, metadata={"weknora_session_id": "kept"}, **options),
    ]
    kept[1].pause()
    told = manage(
        "reconcile",
        "--json",
        folder=console.log.parent,
        redis_socket=redis_socket,
        sandboxd_socket=str(daemon.socket),
        SKILLYARD_ORPHAN_GRACE_S="0",
    )
    for sandbox in kept:
        assert sandbox.get_info().sandbox_id == sandbox.sandbox_id
    reports = json.loads(told)
    [report] = [report for report in reports if report["seen"]]
    assert {name: report[name] for name in ("seen", "bound", "paused", "deleted")} == {
        "seen": 2,
        "bound": 2,
        "paused": 1,
        "deleted": 0,
    }
    assert not any(report[name] for name in ("orphaned", "unverifiable", "drifted", "claimable"))
    for sandbox in kept:
        assert sandbox.kill()


def test_any_process_serves_any_sandbox_and_losing_one_loses_nothing(
    console: Server, daemon: Daemon, redis_socket: str, options: dict[str, Any]
) -> None:
    folder: Path = console.log.parent
    with web_process(
        folder, redis_socket=redis_socket, sandboxd_socket=str(daemon.socket)
    ) as replica:
        there = {**options, "api_url": replica.url, "sandbox_url": replica.url}
        sandbox = Sandbox.create(timeout=120, **there)
        script = "for i in $(seq 600); do echo line-$i; sleep 0.1; done"
        command = sandbox.commands.run(script, background=True)
        first = next(iter(command))
        assert "line-" in str(first)
        replica.crash()

        with pytest.raises(Exception, match=r"."):
            command.wait()
        again = Sandbox.connect(sandbox.sandbox_id, **options)
        reading = again.commands.connect(command.pid)
        read = [str(item) for _, item in zip(range(3), reading, strict=False)]
        assert len(read) == 3
        assert all("line-" in text for text in read)
        assert again.commands.kill(command.pid)
        assert again.kill()
