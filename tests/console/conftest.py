"""Fixtures of the console's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone, translation

from tests.console.cast import World, make_world


@pytest.fixture(autouse=True)
def the_usual_language_and_zone() -> Iterator[None]:
    """A request leaves its own active, for the next request to replace."""
    yield
    translation.deactivate()
    timezone.deactivate()


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
