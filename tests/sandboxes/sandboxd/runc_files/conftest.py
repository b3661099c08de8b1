"""A directory that stands in for a sandbox's root, and the file system over it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from sandboxes.sandboxd.engines.runc.filesystem import RuncFileSystem

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it changes owners")

PASSWD = """root:x:0:0:root:/root:/bin/bash
user:x:1000:1000::/home/user:/bin/bash
broken line
huge:x:99999999999:5::/:/bin/sh
"""
GROUP = "root:x:0:\nuser:x:1000:\n"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.sandbox)
            item.add_marker(needs_root)


def open_root_of(directory: Path) -> Callable[[], int]:
    return lambda: os.open(directory, os.O_PATH | os.O_DIRECTORY)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root as the host sees it; beside it lies `outside`, which nothing may reach."""
    root = tmp_path / "root"
    for directory in ("etc", "home/user", "tmp", "workspace"):
        (root / directory).mkdir(parents=True)
    (root / "etc/passwd").write_text(PASSWD)
    (root / "etc/group").write_text(GROUP)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("host secret")
    return root


@pytest.fixture
def outside(root: Path) -> Path:
    return root.parent / "outside"


@pytest.fixture(params=[0, 100_000], ids=["unshifted", "shifted"])
def shift(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def files(root: Path) -> RuncFileSystem:
    return RuncFileSystem(open_root_of(root), id_shift=0)


@pytest.fixture
def shifted_files(root: Path, shift: int) -> RuncFileSystem:
    for path in [root, *root.rglob("*")]:
        os.lchown(path, shift, shift)
    return RuncFileSystem(open_root_of(root), id_shift=shift)


@pytest.fixture
def stream() -> Callable[..., AsyncIterator[bytes]]:
    async def chunks(*pieces: bytes) -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return chunks


@pytest.fixture
def read_all(files: RuncFileSystem) -> Callable[..., object]:
    async def read(path: str, **kwargs: int) -> bytes:
        return b"".join([chunk async for chunk in await files.read(path, **kwargs)])

    return read


@pytest.fixture
def mounts() -> Iterator[Callable[..., None]]:
    """mounts(source, directory, type, options): unmounted at the end."""
    mounted: list[Path] = []

    def mount(source: str, directory: Path, kind: str, options: str = "rw") -> None:
        subprocess.run(["mount", "-t", kind, "-o", options, source, str(directory)], check=True)
        mounted.append(directory)

    yield mount
    for directory in reversed(mounted):
        subprocess.run(["umount", str(directory)], check=True)
