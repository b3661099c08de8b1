"""Fixtures of the pages' tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import time_machine


@pytest.fixture
def clock() -> Iterator[time_machine.Traveller]:
    """Time stands still until the test moves it."""
    with time_machine.travel("2030-01-01T00:00:10Z", tick=False) as traveller:
        yield traveller


@pytest.fixture
def quick_passwords(settings: Any) -> None:
    """Argon2 is slow on purpose; these tests hash at every step."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
