"""What a watch reports, from the moment its block is entered."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from sandboxes.errors import InvalidRequest, NotFound


async def collect(events, until: tuple[str, str]) -> list[tuple[str, str]]:
    found = []
    async with asyncio.timeout(5):
        async for event in events:
            found.append(event)
            if event == until:
                return found
    raise AssertionError(f"{until} never came: {found}")


async def test_each_kind_of_change(root: Path, files):
    base = root / "workspace"
    async with files.watch("/workspace", recursive=False) as events:
        (base / "f").write_text("x")
        (base / "f").chmod(0o600)
        (base / "f").rename(base / "g")
        (base / "g").unlink()
        found = await collect(events, ("remove", "g"))
    assert found == [
        ("create", "f"),
        ("write", "f"),
        ("chmod", "f"),
        ("rename", "f"),
        ("create", "g"),
        ("remove", "g"),
    ]


async def test_below_is_reported_only_when_recursive(root: Path, files):
    base = root / "workspace"
    (base / "old").mkdir()
    async with (
        files.watch("/workspace", recursive=False) as flat,
        files.watch("/workspace", recursive=True) as deep,
    ):
        (base / "old/f").write_text("x")
        (base / "end").write_text("")
        assert ("create", "old/f") in await collect(deep, ("create", "end"))
        assert ("create", "old/f") not in await collect(flat, ("create", "end"))


async def test_directories_made_at_once_lose_nothing(root: Path, files):
    async with files.watch("/workspace", recursive=True) as events:
        for tree in range(30):
            (root / f"workspace/{tree}/a/b").mkdir(parents=True)
            (root / f"workspace/{tree}/a/b/f").write_text("x")
        (root / "workspace/end").write_text("")
        wanted = {(kind, f"{tree}/a/b/f") for tree in range(30) for kind in ("create", "write")}
        found: list[tuple[str, str]] = []
        async with asyncio.timeout(5):
            async for event in events:
                found.append(event)
                wanted.discard(event)
                if not wanted:
                    break
    creates = [event for event in found if event[0] == "create"]
    assert len(creates) == len(set(creates))


async def test_a_moved_directory_is_followed_under_its_new_name(root: Path, files):
    base = root / "workspace"
    (base / "d/sub").mkdir(parents=True)
    async with files.watch("/workspace", recursive=True) as events:
        (base / "d").rename(base / "e")
        assert await collect(events, ("create", "e")) == [("rename", "d"), ("create", "e")]
        # The new name is watched from the moment that its own event was handled.
        (base / "e/sub/f").write_text("x")
        await collect(events, ("create", "e/sub/f"))
        (base / "e").rename(root / "tmp/gone")
        await collect(events, ("rename", "e"))
        (root / "tmp/gone/sub/unseen").write_text("x")
        (base / "end").write_text("")
        assert all("unseen" not in path for _, path in await collect(events, ("create", "end")))


async def test_the_watch_ends_with_its_directory(root: Path, files):
    (root / "workspace/d").mkdir()
    async with files.watch("/workspace/d", recursive=True) as events:
        shutil.rmtree(root / "workspace/d")
        async with asyncio.timeout(5):
            assert [event async for event in events] == [("remove", ".")]


async def test_links_are_not_watched_through(root: Path, outside: Path, files):
    async with files.watch("/workspace", recursive=True) as events:
        (root / "workspace/l").symlink_to(outside)
        (outside / "more").write_text("")
        (root / "workspace/end").write_text("")
        assert await collect(events, ("create", "end")) == [("create", "l"), ("create", "end")]


async def test_a_watch_needs_a_directory(root: Path, files):
    (root / "workspace/f").write_text("")
    with pytest.raises(InvalidRequest):
        async with files.watch("/workspace/f", recursive=False):
            pass
    with pytest.raises(NotFound):
        async with files.watch("/workspace/none", recursive=False):
            pass


async def test_a_closed_watch_leaves_no_descriptor(files):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        async with files.watch("/", recursive=True):
            pass
    assert len(os.listdir("/proc/self/fd")) == before
