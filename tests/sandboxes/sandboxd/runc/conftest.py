"""An engine of its own for the tests of this folder, and a template to stand on."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sandboxes.errors import Unsupported
from sandboxes.network import CLOSED, NetworkPolicy
from sandboxes.sandboxd.engines.base import Limits, SandboxSpec
from sandboxes.sandboxd.engines.runc import host
from sandboxes.sandboxd.engines.runc.engine import RuncEngine
from sandboxes.sandboxd.templates import TemplateStore
from tests.leaks import leaks
from tests.sandboxes.sandboxd.runc.shell import Shell

TEMPLATES_DIR = Path(os.environ.get("SKILLYARD_TEMPLATES_DIR", "/var/lib/skillyard/templates"))

Create = Callable[..., Awaitable[Shell]]
OwnEngine = Callable[[], AbstractAsyncContextManager[RuncEngine]]


@pytest.fixture(scope="session")
def image() -> str:
    """The id of the base template."""
    templates = TemplateStore(TEMPLATES_DIR).list()
    if not templates:
        pytest.skip("no base template; run `manage.py template build`")
    named = [template.id for template in templates if template.name == "base"]
    return (named or [templates[0].id])[0]


@contextmanager
def _clean_data_dir() -> Iterator[Path]:
    """Reachable by the sandboxes' own root, as pytest's folders are not. Nothing of an engine may
    be left when a test has closed it."""
    try:
        host.check(Path("/tmp/any"))
    except Unsupported as missing:
        pytest.skip(str(missing))
    folder = Path(tempfile.mkdtemp(prefix="skillyard-", dir="/tmp"))
    folder.chmod(0o711)
    try:
        yield folder / "data"
        assert leaks(folder / "data") == []
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def _running(engine: RuncEngine) -> AsyncIterator[RuncEngine]:
    await engine.start()
    try:
        yield engine
    finally:
        for sandbox_id in engine.sandbox_ids():
            await engine.destroy(sandbox_id)
        for snapshot in await engine.snapshots():
            await engine.delete_snapshot(snapshot.id)
        await engine.settled()
        await engine.aclose()


@pytest.fixture(scope="session")
async def engine(image: str) -> AsyncIterator[RuncEngine]:
    """One for all tests that don't restart it."""
    with _clean_data_dir() as data_dir:
        async with _running(RuncEngine(data_dir=data_dir, templates_dir=TEMPLATES_DIR)) as engine:
            yield engine


@pytest.fixture
def data_dir() -> Iterator[Path]:
    with _clean_data_dir() as data_dir:
        yield data_dir


@pytest.fixture
def own_engine(data_dir: Path, image: str) -> OwnEngine:
    """Engines on a data directory of the test's own, one after the other, as sandboxd restarts."""

    def run() -> AbstractAsyncContextManager[RuncEngine]:
        return _running(RuncEngine(data_dir=data_dir, templates_dir=TEMPLATES_DIR))

    return run


def new_id() -> str:
    return f"t{secrets.token_hex(10)[:19]}"


async def create_in(
    engine: RuncEngine,
    image: str,
    *,
    network: NetworkPolicy = CLOSED,
    limits: Limits | None = None,
) -> Shell:
    spec = SandboxSpec(id=new_id(), image=image, network=network, limits=limits or Limits())
    await engine.create(spec)
    return Shell(engine, spec.id)


@pytest.fixture
async def create(engine: RuncEngine, image: str) -> AsyncIterator[Create]:
    """Makes sandboxes that end with the test. They have no network unless asked for."""
    made: list[Shell] = []

    async def create(*, of: str | None = None, **options: Any) -> Shell:
        made.append(await create_in(engine, of or image, **options))
        return made[-1]

    yield create
    for shell in made:
        await engine.destroy(shell.id)


@pytest.fixture
async def shell(create: Create) -> Shell:
    """A fresh sandbox with no network."""
    return await create()
