"""The `e2b` backend as it reaches a remote server: over TCP with an API key. The server is a
sandboxd, so what is tried here is what differs from the `local` backend: the way there."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sandboxes import registry, testing
from sandboxes.client import SandboxClient
from tests.sandboxes import daemon as daemons

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
async def client(sandboxd_on_tcp: daemons.Daemon) -> AsyncIterator[SandboxClient]:
    url = f"http://{sandboxd_on_tcp.tcp}"
    settings = {
        "api_url": url,
        "sandbox_url": url,
        "api_key": sandboxd_on_tcp.api_key,
        "allow_private": True,
    }
    async with await registry.open_client("e2b", settings) as client:
        yield client


class TestCapabilities(testing.CapabilityContract): ...


class TestLifecycle(testing.LifecycleContract): ...


class TestExecOutput(testing.ExecOutputContract): ...


class TestExecDeadline(testing.ExecDeadlineContract): ...


class TestFileStreams(testing.FileStreamContract): ...


class TestInbound(testing.InboundContract): ...


class TestErrors(testing.ErrorContract): ...
