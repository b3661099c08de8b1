"""Builds as Celery runs them: in order, cancelled while a command runs, sessions told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sandboxes.daemon import Daemon
from tests.sandboxes.sessions.world import RedisServer
from tests.skills.builds.processes import drive

pytestmark = [pytest.mark.sandbox, pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_worker_builds_in_order_and_cancels_what_runs(
    sandboxd: Daemon, tmp_path: Path, redis_server: RedisServer
) -> None:
    result = drive("worker_driver", sandboxd.socket, folder=tmp_path, redis=redis_server)
    assert result["while_first_ran"] == "queued"
    assert result["states"] == ["succeeded", "cancelled"]
    assert result["untold"] == 0
    assert result["serving"] == 1
    assert isinstance(result["cancelled_s"], float)
    assert result["cancelled_s"] < 10
