"""What the tests of the Cube adapter share."""

from __future__ import annotations

from typing import Any

import pytest

from sandboxes.backends.cube.client import CubeClient
from sandboxes.backends.cube.waiting import Patience
from sandboxes.types import OnTimeout, TimeoutPolicy

QUICK = Patience(pause_s=2, resume_s=3, ready_s=3, busy_s=2, lookup_s=1, attempt_s=1, step_s=0.05)
KEEP = TimeoutPolicy(timeout_s=300, on_timeout=OnTimeout.PAUSE)


def versions(*names: str) -> Any:
    """Run a test on these versions of the cluster."""
    return pytest.mark.parametrize("cube", names, indirect=True)


EVERY = versions("0.5", "0.6", "0.7", "0.8")


async def pause(client: CubeClient, sandbox_id: str) -> None:
    assert client.pausing is not None
    await client.pausing.pause(sandbox_id)


async def body_of(call: Any) -> dict[str, Any]:
    """What a recorded request carried."""
    body = await call.json()
    assert isinstance(body, dict)
    return body
