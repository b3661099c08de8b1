"""The fixtures that the suite uses, to be imported into a conftest.

A backend's test module defines `client` (module scope) and `template`, and overrides `outside` and
`leftovers` if it can: they skip by default.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from sandboxes.client import SandboxClient
from sandboxes.testing.base import Outside, SandboxFactory
from sandboxes.types import Sandbox

__all__ = ["box", "leftovers", "outside", "sandbox"]


@pytest.fixture
async def sandbox(client: SandboxClient, template: str) -> AsyncIterator[SandboxFactory]:
    """Makes sandboxes that are deleted after the test."""
    factory = SandboxFactory(client, template)
    yield factory
    await factory.aclose()


@pytest.fixture
async def box(sandbox: SandboxFactory) -> Sandbox:
    """One fresh sandbox with a closed network."""
    return await sandbox()


@pytest.fixture
def outside() -> Outside:
    pytest.skip("this backend's tests have no servers outside its network to reach")


@pytest.fixture
def leftovers() -> Callable[[str], list[str]]:
    """What is left of a sandbox on its host, as lines for people; by id."""
    pytest.skip("this backend's tests cannot look at its host")
