"""Guessing keys: a few tries from one address, then 429 until the bucket fills again; told once a window."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator

import httpx
import pytest

from tests.console.api.server import Server, start

BURST = 3


@pytest.fixture(scope="module")
def strict(redis_socket: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A console with little patience, and no backend behind it: no guess gets that far."""
    folder = tmp_path_factory.mktemp("strict")
    with start(
        folder,
        redis_socket=redis_socket,
        sandboxd_socket="/nowhere.sock",
        SKILLYARD_API_RATE_WRONG_KEY=f"0.05,{BURST}",
    ) as server:
        yield server


def ask(server: Server, key: str, **headers: str) -> httpx.Response:
    return httpx.get(f"{server.url}/v2/sandboxes", headers={"X-API-Key": key, **headers})


def told(server: Server) -> list[tuple[str, str, dict[str, object]]]:
    with sqlite3.connect(server.log.parent / "console.sqlite3") as database:
        found = database.execute(
            "SELECT target, outcome, details FROM audit_auditentry WHERE action = 'key.guess'"
        ).fetchall()
    return [(target, outcome, json.loads(details)) for target, outcome, details in found]


def test_guesses_are_counted_by_address(strict: Server) -> None:
    good = strict.facts["keys"]["e2b"]
    # No backend: a right key gets past the door, and no further.
    assert ask(strict, good).status_code == 503
    # No key at all is no guess.
    assert {httpx.get(f"{strict.url}/sandboxes").status_code for _ in range(BURST)} == {401}

    guesses = [ask(strict, f"e2b_{number:040x}") for number in range(BURST)]
    assert [answer.status_code for answer in guesses] == [401] * BURST
    for number in range(5):
        blocked = ask(strict, f"e2b_{number + 100:040x}")
        assert blocked.status_code == 429
        assert blocked.json()["code"] == 429
        assert "wrong API keys" in blocked.json()["message"]
        assert 1 <= int(blocked.headers["retry-after"]) <= 20
        # An SDK would otherwise try the same key three times more.
        assert blocked.headers["should-retry"] == "false"

    # Who was let in not long ago still is; who was not has to wait, right or wrong.
    assert ask(strict, good).status_code == 503
    assert ask(strict, strict.facts["keys"]["run"]).status_code == 429
    # Once, however many there were.
    assert told(strict) == [
        ("127.0.0.1", "denied", {"door": "gateway", "wrong_keys": BURST, "window_s": 60})
    ]
    # The REST interface is another door to the same keys.
    rest = httpx.get(f"{strict.url}/api/v1/spaces", headers={"X-API-Key": "sky_" + "0" * 40})
    assert rest.status_code == 429
