"""A run that is asked for while the broker is away is begun once it is back; never twice, never forgotten."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.utils import timezone

from console.fleet.models import ReconcileReport, Verification, VerificationState
from console.fleet.verification import end_abandoned
from console.fleet.waiting import claim, waiting
from tests.console.api import server as servers
from tests.console.cast import World
from tests.sandboxes.sessions.world import RedisServer

TAKE_UP = "import django; django.setup(); from console.fleet.tasks import take_up_requests as t; t.delay()"


def make_older(database: Path) -> None:
    then = (timezone.now() - timedelta(minutes=2)).strftime("%Y-%m-%d %H:%M:%S.%f")
    with sqlite3.connect(database, timeout=20) as rows:
        for table in ("fleet_verification", "fleet_reconcilereport"):
            rows.execute(f"UPDATE {table} SET created_at = ?", [then])  # noqa: S608
    rows.close()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_what_is_asked_for_without_a_broker_is_begun_when_it_is_back(tmp_path: Path) -> None:
    (tmp_path / "redis").mkdir()
    redis = RedisServer(tmp_path / "redis")
    redis.start()
    places = {"redis_socket": redis.socket, "sandboxd_socket": str(tmp_path / "nowhere.sock")}
    env = {**os.environ, **servers.environment(tmp_path, **places)}
    with (
        servers.start(tmp_path, **places) as server,
        httpx.Client(base_url=server.url, headers=server.headers(), timeout=60) as api,
    ):
        facts = server.facts
        backend = f"/api/v1/tenants/{facts['tenant']}/backends/{facts['backend']}"
        redis.kill()
        asked = {kind: api.post(f"{backend}/{kind}", json={}) for kind in RUNS}
        once = api.post(f"{backend}/reconciles", json={}, headers={"Idempotency-Key": "k"})
        left = {kind: api.get(f"{backend}/{kind}").json()["data"] for kind in RUNS}
        redis.start()
        try:
            make_older(tmp_path / "console.sqlite3")
            with servers.worker(env):
                subprocess.run([sys.executable, "-c", TAKE_UP], env=env, check=True, timeout=60)
                ended = {kind: wait_for_end(api, f"{backend}/{kind}") for kind in RUNS}
        finally:
            redis.stop()

    assert [answer.status_code for answer in asked.values()] == [202, 202]
    assert (once.status_code, once.json()["error"]["kind"]) == (503, "unavailable")
    assert int(once.headers["Retry-After"]) >= 1
    for kind in RUNS:
        assert [(row["id"], row["state"]) for row in left[kind]] == [
            (asked[kind].json()["data"]["id"], "queued")
        ], "one row for the 202, none for the 503"
    # The backend itself is not there: both were really tried.
    assert "nowhere.sock" in ended["reconciles"]["aborted"]
    assert "nowhere.sock" in ended["verifications"]["problem"]


RUNS = ("reconciles", "verifications")


def wait_for_end(api: httpx.Client, path: str) -> Any:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        (row,) = api.get(path).json()["data"]
        if row["finished_at"]:
            return row
        time.sleep(0.2)
    raise AssertionError(f"{path} was never taken up: {row}")


def test_of_two_deliveries_one_begins(world: World) -> None:
    for model in (ReconcileReport, Verification):
        first, second = model.objects.get(), model.objects.get()
        assert waiting(model) == []
        later = timezone.now() + timedelta(minutes=1)
        assert waiting(model, now=later) == [first.pk]
        assert (claim(first), claim(second)) == (True, False)
        assert first.started_at is not None
        assert waiting(model, now=later) == []


def test_a_verification_whose_worker_died_is_ended(world: World) -> None:
    row = Verification.objects.get()
    claim(row)
    assert end_abandoned() == 0
    assert end_abandoned(now=timezone.now() + timedelta(hours=2)) == 1
    row.refresh_from_db()
    assert row.state == VerificationState.FAILED
    assert "start another run" in row.problem
