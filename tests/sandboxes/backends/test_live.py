"""The whole contract against a real cluster or account, for those who have one: nothing here runs unless its
environment says where. What is made is deleted.

    CUBE_API_URL, CUBE_PROXY_URL, CUBE_TEMPLATE_ID, and CUBE_API_KEY, CUBE_SANDBOX_DOMAIN if needed
    E2B_API_KEY, and E2B_API_URL, E2B_DOMAIN, E2B_TEMPLATE if needed
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from sandboxes import registry, testing
from sandboxes.client import SandboxClient

pytestmark = pytest.mark.slow

WHERE: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "cube": (
        "CUBE_API_URL",
        {
            "api_url": "CUBE_API_URL",
            "proxy_url": "CUBE_PROXY_URL",
            "api_key": "CUBE_API_KEY",
            "sandbox_domain": "CUBE_SANDBOX_DOMAIN",
            "template": "CUBE_TEMPLATE_ID",
        },
    ),
    "e2b": (
        "E2B_API_KEY",
        {
            "api_key": "E2B_API_KEY",
            "api_url": "E2B_API_URL",
            "domain": "E2B_DOMAIN",
            "template": "E2B_TEMPLATE",
        },
    ),
}


@pytest.fixture(scope="module", params=sorted(WHERE))
def account(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    provider: str = request.param
    needed, names = WHERE[provider]
    if needed not in os.environ:
        pytest.skip(f"needs an account at {provider}; set {needed} (see the module's text)")
    settings = {key: os.environ[name] for key, name in names.items() if name in os.environ}
    return provider, {**settings, "allow_private": True}


@pytest.fixture(scope="module")
async def client(account: tuple[str, dict[str, Any]]) -> AsyncIterator[SandboxClient]:
    async with await registry.open_client(*account) as client:
        yield client


@pytest.fixture(scope="module")
def template(account: tuple[str, dict[str, Any]]) -> str:
    return str(account[1].get("template", "base"))


class TestCapabilities(testing.CapabilityContract): ...


class TestLifecycle(testing.LifecycleContract): ...


class TestMetadata(testing.MetadataContract): ...


class TestExecResult(testing.ExecResultContract): ...


class TestExecDeadline(testing.ExecDeadlineContract): ...


class TestExecLeaving(testing.ExecLeavingContract): ...


class TestFileStreams(testing.FileStreamContract): ...


class TestPause(testing.PauseContract): ...


class TestSnapshots(testing.SnapshotContract): ...


class TestTemplates(testing.TemplateContract): ...


class TestInbound(testing.InboundContract): ...


class TestErrors(testing.ErrorContract): ...
