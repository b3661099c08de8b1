"""An engine of its own for the tests of this folder, on a Docker engine of the tests' own."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import docker
import pytest

from sandboxes.network import CLOSED, NetworkPolicy
from sandboxes.sandboxd.engines.base import Limits, SandboxSpec
from sandboxes.sandboxd.engines.docker.api import DockerHost
from sandboxes.sandboxd.engines.docker.engine import DockerEngine
from sandboxes.sandboxd.templates.commands import default_templates_dir
from tests.leaks import leaks
from tests.sandboxes import daemon as daemons
from tests.sandboxes.dockerd import Dockerd
from tests.sandboxes.sandboxd.runc.shell import Shell

Create = Callable[..., Awaitable[Shell]]
OwnEngine = Callable[[], AbstractAsyncContextManager[DockerEngine]]


@pytest.fixture(scope="session")
def image() -> str:
    """The id of the base template."""
    if reason := daemons.why_not():
        pytest.skip(reason)
    return daemons.base_template()


@pytest.fixture(scope="session")
def witness(dockerd: Dockerd) -> Iterator[docker.DockerClient]:
    """Docker's own client."""
    with contextlib.closing(dockerd.client()) as client:
        yield client


@contextmanager
def _clean_data_dir(witness: docker.DockerClient) -> Iterator[Path]:
    """Nothing of an engine may be left when a test has closed it, in Docker neither."""
    folder = Path(tempfile.mkdtemp(prefix="skillyard-", dir="/tmp"))
    try:
        yield folder / "data"
        assert leaks(folder / "data") == []
        assert [each.name for each in witness.containers.list(all=True)] == []
        tags = [tag for image in witness.images.list() for tag in image.tags]
        assert [tag for tag in tags if not tag.startswith("skillyard-template:")] == []
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def _running(engine: DockerEngine) -> AsyncIterator[DockerEngine]:
    await engine.start()
    try:
        yield engine
    finally:
        for sandbox_id in engine.sandbox_ids():
            await engine.destroy(sandbox_id)
        await engine.settled()
        for snapshot in await engine.snapshots():
            await engine.delete_snapshot(snapshot.id)
        await engine.aclose()


def make_engine(data_dir: Path, dockerd: Dockerd) -> DockerEngine:
    return DockerEngine(
        data_dir=data_dir,
        templates_dir=default_templates_dir(),
        host=DockerHost(url=dockerd.url),
    )


@pytest.fixture
def own_engine(witness: docker.DockerClient, dockerd: Dockerd, image: str) -> Iterator[OwnEngine]:
    """Engines on a data directory of the test's own, one after the other, as sandboxd restarts."""
    with _clean_data_dir(witness) as data_dir:
        yield lambda: _running(make_engine(data_dir, dockerd))


@pytest.fixture
async def engine(own_engine: OwnEngine) -> AsyncIterator[DockerEngine]:
    async with own_engine() as engine:
        yield engine


def new_id() -> str:
    return f"t{secrets.token_hex(10)[:19]}"


async def create_in(
    engine: DockerEngine,
    image: str,
    *,
    network: NetworkPolicy = CLOSED,
    limits: Limits | None = None,
) -> Shell:
    spec = SandboxSpec(id=new_id(), image=image, network=network, limits=limits or Limits())
    await engine.create(spec)
    return Shell(engine, spec.id)


@pytest.fixture
def create(engine: DockerEngine, image: str) -> Create:
    """Makes sandboxes that end with the test. They have no network unless asked for."""

    async def create(*, of: str | None = None, **options: Any) -> Shell:
        return await create_in(engine, of or image, **options)

    return create


@pytest.fixture
async def shell(create: Create) -> Shell:
    """A fresh sandbox with no network."""
    return await create()


def container_of(witness: docker.DockerClient, shell: Shell) -> Any:
    (found,) = witness.containers.list(all=True, filters={"label": f"skillyard.sandbox={shell.id}"})
    return found
