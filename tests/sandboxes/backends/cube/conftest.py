"""A client of each fake cluster, impatient for tests; what it makes is deleted after each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from sandboxes import registry
from sandboxes.backends.cube.client import CubeClient
from sandboxes.testing import SandboxFactory
from tests.sandboxes import daemon as daemons
from tests.sandboxes.backends.cube.helpers import QUICK
from tests.sandboxes.backends.fake_cube import FakeCube, start


@pytest.fixture(scope="module")
def clusters(sandboxd: daemons.Daemon) -> Iterator[dict[str, FakeCube]]:
    with (
        start(sandboxd.socket, version="0.5") as oldest,
        start(sandboxd.socket, version="0.6") as old,
        start(sandboxd.socket, version="0.7") as usual,
        start(sandboxd.socket, version="0.8") as newest,
    ):
        yield {fake.profile.version: fake for fake in (oldest, old, usual, newest)}


@pytest.fixture(params=["0.7"])
def cube(request: pytest.FixtureRequest, clusters: dict[str, FakeCube]) -> Iterator[FakeCube]:
    fake = clusters[request.param]
    fake.forget()
    yield fake
    fake.faults.reset()


@pytest.fixture(scope="module")
def template() -> str:
    if reason := daemons.why_not():
        pytest.skip(reason)
    return f"tpl-{daemons.base_template()}"


@pytest.fixture
async def client(cube: FakeCube) -> AsyncIterator[CubeClient]:
    opened = await registry.open_client("cube", cube.settings())
    assert isinstance(opened, CubeClient)
    opened._patience = QUICK
    cube.control_calls.clear()
    async with opened:
        yield opened
        cube.faults.reset()


@pytest.fixture
async def sandbox(
    client: CubeClient, template: str, cube: FakeCube
) -> AsyncIterator[SandboxFactory]:
    factory = SandboxFactory(client, template)
    yield factory
    cube.faults.reset()
    for box in cube.cluster.boxes.values():
        box.state = "running" if box.state == "pausing" else box.state
    await factory.aclose()
