"""A data directory is found again under another path: what its sandboxes have on the host is named after it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxes.network import NetworkPolicy
from sandboxes.sandboxd import identity
from sandboxes.sandboxd.engines.runc.engine import RuncEngine
from tests.leaks import leaks
from tests.sandboxes.sandboxd.runc.conftest import TEMPLATES_DIR, create_in
from tests.sandboxes.sandboxd.runc.shell import Shell

OPEN = NetworkPolicy(outbound=True, inbound=False)
Move = Callable[[Path], Path]


def through_a_link(data_dir: Path) -> Path:
    link = data_dir.with_name("link")
    link.symlink_to(data_dir)
    return link


def moved(data_dir: Path) -> Path:
    return data_dir.rename(data_dir.with_name("moved"))


def beside(data_dir: Path) -> Path:
    return data_dir.parent / "x" / ".." / data_dir.name


async def left_behind(data_dir: Path, image: str) -> Shell:
    """A sandbox with a link to the network, whose sandboxd has gone."""
    engine = RuncEngine(data_dir=data_dir, templates_dir=TEMPLATES_DIR)
    await engine.start()
    shell = await create_in(engine, image, network=OPEN)
    await engine.aclose()
    return shell


@pytest.mark.sandbox
@pytest.mark.parametrize("way", [through_a_link, beside, moved], ids=lambda way: way.__name__)
async def test_its_sandboxes_are_adopted_and_cleared_away(
    data_dir: Path, image: str, way: Move
) -> None:
    (data_dir.parent / "x").mkdir()
    shell = await left_behind(data_dir, image)
    there = way(data_dir)
    engine = RuncEngine(data_dir=there, templates_dir=TEMPLATES_DIR)
    adopted = await engine.start()
    try:
        assert [found.id for found in adopted] == [shell.id]
        routes = (await Shell(engine, shell.id).run("cat", "/proc/net/route")).stdout
        assert "eth0\t00000000" in routes, "its way out is there"
    finally:
        for sandbox_id in engine.sandbox_ids():
            await engine.destroy(sandbox_id)
        await engine.settled()
        await engine.aclose()
    assert leaks(data_dir) == [], "under the name of its first path"
    assert leaks(there) == []


def test_a_copy_is_another(tmp_path: Path) -> None:
    first = identity.identity(tmp_path / "data")
    assert identity.identity(tmp_path / "data") == first
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    assert identity.key(tmp_path / "copy") != identity.key(tmp_path / "data")
    assert identity.identity(tmp_path / "copy") == identity.identity(tmp_path / "copy")
    assert identity.identity(tmp_path / "data") == first


def test_one_from_before_keeps_the_name_of_its_path(tmp_path: Path) -> None:
    fresh = identity.key(tmp_path / "data")
    (tmp_path / "data/identity.json").unlink()
    (tmp_path / "data/engine.lock").touch()
    assert identity.key(tmp_path / "data") == fresh


def test_a_folder_where_one_was_moved_away_gets_a_name_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "_RUN_DIR", tmp_path / "run")
    first = identity.key(tmp_path / "data")
    (tmp_path / "run" / f"network-{first}").mkdir(parents=True)
    (tmp_path / "data").rename(tmp_path / "moved")
    assert identity.key(tmp_path / "data") != first
    assert identity.key(tmp_path / "moved") == first


def test_a_torn_file_is_made_anew(tmp_path: Path) -> None:
    first = identity.key(tmp_path / "data")
    (tmp_path / "data/identity.json").write_text('{"id": "')
    assert identity.key(tmp_path / "data") == first
    assert json.loads((tmp_path / "data/identity.json").read_text())["id"].startswith(first)
