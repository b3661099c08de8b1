"""Large files, deep trees, full disks and moves between mounts."""

from __future__ import annotations

import asyncio
import os
import tracemalloc
from pathlib import Path

import pytest

from sandboxes.errors import Capacity

MIB = 1 << 20


async def test_100_mb_stream_in_and_out_with_flat_memory(root: Path, files):
    block = os.urandom(64 << 10)

    async def source():
        for _ in range(1600):
            yield block

    tracemalloc.start()
    try:
        await files.write("/workspace/big", source(), owner="user")
        total = 0
        async for chunk in await files.read("/workspace/big"):
            total += len(chunk)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert total == 100 * MIB
    assert peak < 8 * MIB


async def test_a_full_disk_is_said_so_and_loses_nothing_else(root: Path, files, stream, mounts):
    (root / "small").mkdir()
    mounts("tmpfs", root / "small", "tmpfs", "size=1m")
    (root / "small/kept").write_text("kept")
    with pytest.raises(Capacity, match="No space is left"):
        await files.write("/small/big", stream(b"x" * 2 * MIB), owner="user")
    assert (root / "small/kept").read_text() == "kept"
    await files.remove("/small/big")
    await files.write("/small/fits", stream(b"x"), owner="user")


async def test_trees_deeper_than_any_path_are_removed(root: Path, files):
    depth = 1100  # beyond PATH_MAX, and beyond any recursion
    fd = os.open(root / "workspace", os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("a-rather-long-name", dir_fd=fd)
        below = os.open("a-rather-long-name", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    assert 100 < len(await files.list("/workspace", depth=10_000)) < depth
    await files.remove("/workspace/a-rather-long-name")
    assert os.listdir(root / "workspace") == []


async def test_wide_trees_are_removed(root: Path, files):
    for directory in range(50):
        (root / f"workspace/wide/{directory}/x/y").mkdir(parents=True)
        for name in range(20):
            (root / f"workspace/wide/{directory}/x/{name}").write_text("")
    assert len(await files.list("/workspace/wide", depth=9)) == 50 * (1 + 1 + 1 + 20)
    await files.remove("/workspace/wide")
    assert os.listdir(root / "workspace") == []


async def test_a_move_between_mounts_keeps_all_of_a_tree(root: Path, files, mounts):
    (root / "other").mkdir()
    mounts("tmpfs", root / "other", "tmpfs", "size=4m")
    tree = root / "workspace/tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub/run.sh").write_text("#!/bin/sh")
    (tree / "sub/run.sh").chmod(0o750)
    os.chown(tree / "sub/run.sh", 1000, 1000)
    os.utime(tree / "sub/run.sh", (1_600_000_000, 1_600_000_000))
    os.setxattr(tree / "sub/run.sh", "user.e2b.k", b"v")
    (tree / "link").symlink_to("/nowhere")
    os.mkfifo(tree / "fifo")
    await files.move("/workspace/tree", "/other/new/tree", owner="user")
    moved = root / "other/new/tree"
    status = (moved / "sub/run.sh").stat()
    assert (status.st_uid, status.st_mode & 0o7777, status.st_mtime) == (1000, 0o750, 1_600_000_000)
    assert os.getxattr(moved / "sub/run.sh", "user.e2b.k") == b"v"
    assert os.readlink(moved / "link") == "/nowhere"
    assert (moved / "fifo").is_fifo()
    assert not tree.exists()


async def test_a_move_that_does_not_fit_leaves_the_source_as_it_was(root: Path, files, mounts):
    (root / "other").mkdir()
    mounts("tmpfs", root / "other", "tmpfs", "size=1m")
    (root / "workspace/big").write_bytes(b"x" * 3 * MIB)
    with pytest.raises(Capacity):
        await files.move("/workspace/big", "/other/big", owner="user")
    assert (root / "workspace/big").stat().st_size == 3 * MIB
    assert os.listdir(root / "other") == []


async def test_cancelled_work_leaves_no_descriptor_and_the_file_whole_or_part(root: Path, files):
    block = os.urandom(MIB)

    async def endless():
        while True:
            yield block

    async def read_all() -> None:
        async for _ in await files.read("/workspace/whole"):
            pass

    (root / "workspace/whole").write_bytes(block * 64)
    before = len(os.listdir("/proc/self/fd"))
    for delay in (0, 0.001, 0.003, 0.01, 0.02):
        work = [
            asyncio.create_task(files.write("/workspace/cut", endless(), owner="user")),
            asyncio.create_task(read_all()),
            asyncio.create_task(files.list("/", depth=9)),
        ]
        await asyncio.sleep(delay)
        for task in work:
            task.cancel()
        await asyncio.wait(work)
        del work
    assert len(os.listdir("/proc/self/fd")) == before
    assert (root / "workspace/cut").stat().st_size % MIB == 0
