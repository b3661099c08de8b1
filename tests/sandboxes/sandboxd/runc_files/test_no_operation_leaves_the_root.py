"""Links, races and special files that a hostile sandbox would lay out."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from sandboxes.errors import InvalidRequest, NotFound, SandboxError


@pytest.fixture(params=["absolute", "relative", "chained", "through a directory"])
def escape(request, root: Path, outside: Path) -> str:
    """A path inside that a careless reader would resolve to the host's secret."""
    links = {
        "absolute": (root / "workspace/l", outside / "secret"),
        "relative": (root / "workspace/l", "../../outside/secret"),
        "chained": (root / "workspace/l2", outside),
        "through a directory": (root / "workspace/d", outside),
    }
    link, target = links[request.param]
    link.symlink_to(target)
    if request.param == "chained":
        (root / "workspace/l").symlink_to("l2/secret")
    return "/workspace/d/secret" if request.param == "through a directory" else "/workspace/l"


async def test_a_link_out_is_resolved_inside(escape, outside, files, stream, read_all):
    with pytest.raises(NotFound):
        await files.read(escape)
    with suppress(SandboxError):
        await files.write(escape, stream(b"overwritten"), owner="user")
    with suppress(SandboxError):
        await files.move(escape, "/workspace/stolen", owner="user")
    with suppress(SandboxError):
        await files.make_dir(escape + "/made", owner="user")
    await files.remove(escape)
    assert sorted(os.listdir(outside)) == ["secret"]
    assert (outside / "secret").read_text() == "host secret"


async def test_a_write_through_a_link_lands_at_its_target_inside(root, files, stream):
    (root / "workspace/real").write_text("")
    (root / "workspace/l").symlink_to("/workspace/real")
    (root / "workspace/dangling").symlink_to("/workspace/made-by-it")
    await files.write("/workspace/l", stream(b"1"), owner="user")
    await files.write("/workspace/dangling", stream(b"2"), owner="user")
    assert (root / "workspace/real").read_bytes() == b"1"
    assert (root / "workspace/made-by-it").read_bytes() == b"2"
    assert (root / "workspace/l").is_symlink()


async def test_dot_dot_stops_at_the_root(root, outside, files, stream, read_all):
    await files.write("/../../outside/secret", stream(b"inside"), owner="user")
    assert (root / "outside/secret").read_bytes() == b"inside"
    assert await read_all("/workspace/../../../../outside/secret") == b"inside"
    (root / "workspace/up").symlink_to("../../../../../../outside")
    assert await read_all("/workspace/up/secret") == b"inside"
    assert (outside / "secret").read_text() == "host secret"


async def test_accounts_are_not_read_through_a_link_out(root, outside, files):
    (outside / "passwd").write_text("intruder:x:0:0::/:/bin/sh\n")
    (root / "etc/passwd").unlink()
    (root / "etc/passwd").symlink_to(outside / "passwd")
    with pytest.raises(InvalidRequest):
        await files.home("intruder")


async def test_a_loop_of_links_is_refused(root, files):
    (root / "workspace/a").symlink_to("b")
    (root / "workspace/b").symlink_to("a")
    with pytest.raises(InvalidRequest, match="too many links"):
        await files.read("/workspace/a")


async def test_special_files_are_never_opened(root, files, stream):
    os.mkfifo(root / "workspace/fifo")
    os.mknod(root / "workspace/null", 0o20666, os.makedev(1, 3))
    for path in ("/workspace/fifo", "/workspace/null"):
        with pytest.raises(InvalidRequest, match="no regular file"):
            await files.read(path)
        with pytest.raises(InvalidRequest, match="no regular file"):
            await files.write(path, stream(b"x"), owner="user")
        assert (await files.stat(path)).type == "other"


async def test_the_kernels_files_are_neither_read_nor_written(root, files, stream, mounts):
    (root / "proc").mkdir()
    mounts("proc", root / "proc", "proc")
    for path in ("/proc/sys/kernel/core_pattern", "/proc/self/oom_score_adj"):
        with pytest.raises(InvalidRequest, match="file of the kernel"):
            await files.read(path)
        with pytest.raises(InvalidRequest, match="file of the kernel"):
            await files.write(path, stream(b"x"), owner="root")
    with pytest.raises(InvalidRequest):
        await files.remove("/proc/self/oom_score_adj")
    with pytest.raises(InvalidRequest):  # a magic link, which would lead out of the root
        await files.read("/proc/1/root/etc/hostname")
    with pytest.raises(InvalidRequest):
        await files.list("/proc/self/cwd", depth=1)
    assert (await files.stat("/proc/cpuinfo")).size_bytes == 0


@pytest.mark.parametrize("flip", ["directory", "file"])
async def test_links_swapped_in_meanwhile_never_lead_out(root, outside, files, stream, flip):
    """A thread keeps exchanging a real entry with a link out while operations run through it."""
    swapped = root / "workspace/swap"
    stop = threading.Event()

    def exchange() -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            real, link = root / f"workspace/.r{turn}", root / f"workspace/.l{turn}"
            if flip == "directory":
                real.mkdir()
            else:
                real.write_text("inside")
            link.symlink_to(outside if flip == "directory" else outside / "secret")
            for new in (real, link):
                with suppress(OSError):
                    if swapped.is_dir() and not swapped.is_symlink():
                        for child in swapped.iterdir():
                            child.unlink()
                        swapped.rmdir()
                with suppress(OSError):
                    os.rename(new, swapped)

    thread = threading.Thread(target=exchange)
    thread.start()
    path = "/workspace/swap/secret" if flip == "directory" else "/workspace/swap"
    done = 0
    try:
        for _ in range(200):
            with suppress(SandboxError):
                await files.write(path, stream(b"written by api"), owner="user")
                done += 1
            with suppress(SandboxError):
                text = b"".join([chunk async for chunk in await files.read(path)])
                assert text != b"host secret"
            with suppress(SandboxError):
                await files.list("/workspace/swap", depth=3)
            with suppress(SandboxError):
                await files.move(path, "/workspace/moved", owner="user")
            with suppress(SandboxError):
                await files.make_dir(path + ".d/x", owner="user")
            with suppress(SandboxError):
                await files.remove("/workspace/swap")
    finally:
        stop.set()
        thread.join()
    assert done > 0
    assert os.listdir(outside) == ["secret"]
    assert (outside / "secret").read_text() == "host secret"
    assert (outside / "secret").stat().st_uid == 0
