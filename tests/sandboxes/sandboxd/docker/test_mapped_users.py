"""A daemon with `userns-remap`: root in a sandbox is nobody on the host."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sandboxes.network import OPEN
from sandboxes.sandboxd.engines.docker.engine import DockerEngine
from tests.sandboxes import dockerd as dockerds
from tests.sandboxes.sandboxd.docker.conftest import create_in, make_engine

pytestmark = [pytest.mark.docker, pytest.mark.slow]

_FIRST = 300_000
# Docker reads an account's range from /etc/subuid and /etc/subgid alone. It gets an /etc of its own:
# a file that is mounted over is uncovered when somebody adds an account meanwhile.
_WITH_OWN_ETC = 'mount --bind "$0" /etc && exec "$@"'


@pytest.fixture(scope="module")
def mapping_dockerd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dockerds.Dockerd]:
    if reason := dockerds.why_not():
        pytest.skip(reason)
    etc = tmp_path_factory.mktemp("own") / "etc"
    shutil.copytree("/etc", etc, symlinks=True)
    for name in ("subuid", "subgid"):
        (etc / name).write_text(f"daemon:{_FIRST}:65536\n")
    prefix = ("unshare", "--mount", "sh", "-c", _WITH_OWN_ETC, str(etc))
    with dockerds.start("--userns-remap=daemon", prefix=prefix) as daemon:
        yield daemon


@pytest.fixture
async def engine(mapping_dockerd: dockerds.Dockerd, tmp_path: Path) -> AsyncIterator[DockerEngine]:
    engine = make_engine(tmp_path / "data", mapping_dockerd)
    await engine.start()
    yield engine
    for sandbox_id in engine.sandbox_ids():
        await engine.destroy(sandbox_id)
    for snapshot in await engine.snapshots():
        await engine.delete_snapshot(snapshot.id)
    await engine.aclose()


async def test_commands_files_network_and_snapshots_fit_the_mapping(
    engine: DockerEngine, image: str
) -> None:
    assert "resource_limits" not in engine.capabilities.notes
    shell = await create_in(engine, image, network=OPEN)
    process = await shell.start("sh", "-c", "echo ready; exec sleep 4077")
    assert (await anext(process.output()))[1] == b"ready\n"
    assert await asyncio.to_thread(_owners_of, "sleep\0" + "4077\0") == {_FIRST}

    async def data() -> AsyncIterator[bytes]:
        yield b"written"

    info = await engine.files(shell.id).write("/home/user/f", data(), owner="user")
    assert (info.owner, info.group) == ("user", "user")
    shown = await shell.sh(
        "stat -c %U /root /home/user /home/user/f; cat /proc/self/uid_map /proc/net/dev"
    )
    assert shown.stdout.startswith("root\nuser\nuser\n")
    assert str(_FIRST) in shown.stdout
    assert "eth0" in shown.stdout

    await engine.snapshot(shell.id, "snap-1")
    await engine.settled()
    second = await create_in(engine, "snap-1")
    done = await second.sh("cat /home/user/f; stat -c %U /home/user/f", user="user")
    assert done.stdout == "writtenuser\n"


def _owners_of(command: str) -> set[int]:
    """The host's ids of all processes with that command line."""
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if (folder / "cmdline").read_text() == command:
                    found.add(folder.stat().st_uid)
            except OSError:
                continue
    return found
