"""Fixtures of the console's tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.console.cast import World, make_world


@pytest.fixture
def no_runtime(settings: Any, tmp_path: Path) -> None:
    """No Redis and no sandboxd: whoever gets past the access check meets an honest 503."""
    settings.REDIS_URL = f"unix://{tmp_path}/no-redis.sock"
    settings.CELERY_BROKER_URL = "memory://"
    settings.MEDIA_ROOT = tmp_path / "media"


@pytest.fixture
def world(db: None, no_runtime: None) -> World:
    return make_world("acme")


@pytest.fixture
def other_world(db: None, no_runtime: None) -> World:
    return make_world("rival")
