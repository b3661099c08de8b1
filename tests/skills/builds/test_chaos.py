"""A worker that is killed anywhere leaves nothing wrong and nothing behind, once the sweep has run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sandboxes.daemon import Daemon
from tests.sandboxes.sessions.world import RedisServer
from tests.skills.builds.processes import drive


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("scenario", "every"),
    [("change", 1), ("first", 4), ("reuse", 1), ("clear", 1), ("candidate", 3)],
)
def test_killed_at_points_of_every_kind_of_build(
    scenario: str, every: int, tmp_path: Path, redis_server: RedisServer
) -> None:
    result = drive("chaos_driver", scenario, every, 0, folder=tmp_path, redis=redis_server)
    assert result["failures"] == {}
    assert isinstance(result["points"], int)
    assert result["points"] > 8


def test_killed_in_every_step(tmp_path: Path, redis_server: RedisServer) -> None:
    """The quick one: a few points, the last of them around the switch."""
    result = drive("chaos_driver", "change", 19, 7, folder=tmp_path, redis=redis_server)
    assert result["failures"] == {}


@pytest.mark.sandbox
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_on_a_real_backend(
    sandboxd: Daemon, tmp_path: Path, redis_server: RedisServer
) -> None:
    points = [
        "after Claim.update",
        "in a command",
        "before plan_release",
        "after plan_release",
        "before activate",
        "before _switch",
        "after _switch",
    ]
    result = drive(
        "chaos_driver", "real", sandboxd.socket, *points, folder=tmp_path, redis=redis_server
    )
    assert result["failures"] == {}
