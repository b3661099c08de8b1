"""Writing, reading, listing, moving and removing, with the owners that the sandbox knows."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sandboxes.errors import Conflict, InvalidRequest, NotFound
from sandboxes.types import FileType


async def test_a_written_file_is_the_accounts_own_and_its_parents_are_too(
    root: Path, shifted_files, stream, shift
):
    info = await shifted_files.write("/workspace/a/b/ü 文.txt", stream(b"he", b"llo"), owner="user")
    host = root / "workspace/a/b/ü 文.txt"
    assert host.read_bytes() == b"hello"
    assert (host.stat().st_uid, host.stat().st_gid) == (1000 + shift, 1000 + shift)
    assert stat.S_IMODE(host.stat().st_mode) == 0o644
    for parent in (root / "workspace/a", root / "workspace/a/b"):
        assert (parent.stat().st_uid, stat.S_IMODE(parent.stat().st_mode)) == (1000 + shift, 0o755)
    assert (root / "workspace").stat().st_uid == shift
    assert (info.owner, info.group, info.size_bytes) == ("user", "user", 5)
    assert (info.name, info.path) == ("ü 文.txt", "/workspace/a/b/ü 文.txt")


async def test_modes_do_not_depend_on_the_umask(root: Path, files, stream):
    before = os.umask(0o077)
    try:
        await files.write("/workspace/deep/f", stream(b"x"), owner="user")
    finally:
        os.umask(before)
    assert stat.S_IMODE((root / "workspace/deep").stat().st_mode) == 0o755
    assert stat.S_IMODE((root / "workspace/deep/f").stat().st_mode) == 0o644


async def test_writing_again_is_in_place(root: Path, files, stream):
    target = root / "workspace/run.sh"
    target.write_text("something much longer")
    target.chmod(0o755)
    os.link(target, root / "workspace/second-name")
    with target.open() as held:
        await files.write("/workspace/run.sh", stream(b"new"), owner="root")
        assert held.read() == "new"
    assert (root / "workspace/second-name").read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o755


async def test_a_setuid_bit_does_not_survive_being_written(root: Path, files, stream):
    target = root / "workspace/suid"
    target.write_text("x")
    target.chmod(0o4755)
    await files.write("/workspace/suid", stream(b"mine now"), owner="user")
    assert stat.S_IMODE(target.stat().st_mode) == 0o755


async def test_an_empty_stream_makes_an_empty_file(root: Path, files, stream, read_all):
    await files.write("/workspace/empty", stream(), owner="user")
    assert await read_all("/workspace/empty") == b""
    await files.write("/workspace/empty", stream(b"", b"x", b""), owner="user")
    assert await read_all("/workspace/empty") == b"x"


async def test_reading_a_part(root: Path, read_all):
    (root / "workspace/f").write_bytes(b"0123456789")
    assert await read_all("/workspace/f", offset=3, length=4) == b"3456"
    assert await read_all("/workspace/f", offset=8, length=100) == b"89"
    assert await read_all("/workspace/f", offset=100) == b""
    assert await read_all("/workspace/f", length=0) == b""


async def test_metadata_replaces_all_that_was_there(files, stream):
    await files.write("/workspace/f", stream(b"x"), owner="user", metadata={"a": "1", "b": "ü"})
    assert dict((await files.stat("/workspace/f")).metadata) == {"a": "1", "b": "ü"}
    info = await files.write("/workspace/f", stream(b"y"), owner="user", metadata={"c": "3"})
    assert dict(info.metadata) == {"c": "3"}
    await files.write("/workspace/f", stream(b"z"), owner="user")
    assert dict((await files.stat("/workspace/f")).metadata) == {"c": "3"}


async def test_a_failed_stream_gives_its_own_error_and_closes_the_file(files, stream):
    async def broken():
        yield b"part"
        raise ConnectionError("client went away")

    open_before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ConnectionError):
        await files.write("/workspace/f", broken(), owner="user")
    assert len(os.listdir("/proc/self/fd")) == open_before


async def test_a_reader_that_is_dropped_closes_its_file(root: Path, files):
    (root / "workspace/f").write_bytes(b"x" * 3_000_000)
    open_before = len(os.listdir("/proc/self/fd"))
    reader = await files.read("/workspace/f")
    await anext(reader)
    del reader
    assert len(os.listdir("/proc/self/fd")) == open_before


async def test_stat_reports_the_entry_itself(root: Path, files):
    (root / "workspace/f").write_text("12345")
    os.chown(root / "workspace/f", 1000, 0)
    os.utime(root / "workspace/f", (1_700_000_000, 1_700_000_000))
    (root / "workspace/link").symlink_to("f")
    (root / "workspace/dangling").symlink_to("/nowhere")
    info = await files.stat("/workspace/f")
    assert (info.type, info.owner, info.group, info.mode) == (FileType.FILE, "user", "root", 0o644)
    assert info.modified_at.timestamp() == 1_700_000_000
    link = await files.stat("/workspace/link")
    assert (link.type, link.link_target, link.target_type) == (
        FileType.SYMLINK,
        "f",
        FileType.FILE,
    )
    dangling = await files.stat("/workspace/dangling")
    assert (dangling.type, dangling.target_type) == (FileType.SYMLINK, None)
    assert (await files.stat("/")).type is FileType.DIRECTORY


async def test_an_unknown_owner_is_shown_as_a_number(root: Path, files):
    (root / "workspace/f").write_text("")
    os.chown(root / "workspace/f", 4242, 200_000)
    info = await files.stat("/workspace/f")
    assert (info.owner, info.group) == ("4242", "65534")


async def test_a_list_is_depth_first_and_sorted(root: Path, files):
    for path in ("b/y", "b/x/deep", "a", "c"):
        (root / "workspace" / path).mkdir(parents=True)
    (root / "workspace/loop").symlink_to("/workspace")

    async def paths(depth: int) -> list[str]:
        return [
            e.path.removeprefix("/workspace/") for e in await files.list("/workspace", depth=depth)
        ]

    assert await paths(1) == ["a", "b", "c", "loop"]
    assert await paths(2) == ["a", "b", "b/x", "b/y", "c", "loop"]
    assert await paths(9) == ["a", "b", "b/x", "b/x/deep", "b/y", "c", "loop"]


async def test_a_list_of_a_link_to_a_directory_uses_the_paths_asked_for(root: Path, files):
    (root / "workspace/real").mkdir()
    (root / "workspace/real/f").write_text("")
    (root / "workspace/link").symlink_to("real")
    assert [e.path for e in await files.list("/workspace/link", depth=1)] == ["/workspace/link/f"]


async def test_home_is_the_accounts(files):
    assert await files.home("user") == "/home/user"
    assert await files.home("1000") == "/home/user"
    with pytest.raises(InvalidRequest, match="no account 'nobody-here'"):
        await files.home("nobody-here")
    with pytest.raises(InvalidRequest):
        await files.home("huge")


async def test_make_dir(root: Path, files):
    info = await files.make_dir("/workspace/x/y", owner="user")
    assert (info.type, info.owner, info.mode) == (FileType.DIRECTORY, "user", 0o755)
    with pytest.raises(Conflict, match="exists already"):
        await files.make_dir("/workspace/x/y", owner="user")
    (root / "workspace/file").write_text("")
    with pytest.raises(InvalidRequest, match="no directory"):
        await files.make_dir("/workspace/file", owner="user")
    with pytest.raises(InvalidRequest):
        await files.make_dir("/workspace/file/below", owner="user")
    (root / "workspace/dangling").symlink_to("/nowhere/at/all")
    with pytest.raises(InvalidRequest):
        await files.make_dir("/workspace/dangling/below", owner="user")


async def test_move_makes_parents_and_replaces_a_file(root: Path, files, stream):
    await files.write("/workspace/a", stream(b"a"), owner="root")
    info = await files.move("/workspace/a", "/workspace/new/place/b", owner="user")
    assert (info.path, info.owner) == ("/workspace/new/place/b", "root")
    assert (root / "workspace/new").stat().st_uid == 1000
    assert not (root / "workspace/a").exists()
    await files.write("/workspace/c", stream(b"c"), owner="user")
    await files.move("/workspace/c", "/workspace/new/place/b", owner="user")
    assert (root / "workspace/new/place/b").read_bytes() == b"c"


async def test_move_refuses_what_is_in_the_way(root: Path, files):
    (root / "workspace/full/x").mkdir(parents=True)
    (root / "workspace/dir").mkdir()
    (root / "workspace/file").write_text("")
    with pytest.raises(NotFound):
        await files.move("/workspace/none", "/workspace/made/z", owner="user")
    assert not (root / "workspace/made").exists()
    with pytest.raises(Conflict):
        await files.move("/workspace/dir", "/workspace/full", owner="user")
    with pytest.raises(Conflict):
        await files.move("/workspace/file", "/workspace/dir", owner="user")
    with pytest.raises(InvalidRequest, match="into itself"):
        await files.move("/workspace/full", "/workspace/full/x/y", owner="user")


async def test_remove_is_recursive_idempotent_and_leaves_link_targets(root: Path, files):
    (root / "workspace/tree/a/b").mkdir(parents=True)
    (root / "workspace/tree/a/f").write_text("")
    (root / "workspace/keep").mkdir()
    (root / "workspace/keep/f").write_text("kept")
    (root / "workspace/tree/link").symlink_to("/workspace/keep")
    os.mkfifo(root / "workspace/tree/fifo")
    for _ in range(2):
        await files.remove("/workspace/tree")
    assert not (root / "workspace/tree").exists()
    assert (root / "workspace/keep/f").read_text() == "kept"
    await files.remove("/workspace/none/below")
    with pytest.raises(InvalidRequest):
        await files.remove("/")


async def test_every_refusal_names_the_path_and_its_kind(root: Path, files, stream):
    (root / "workspace/dir").mkdir()
    (root / "workspace/file").write_text("")
    with pytest.raises(NotFound, match="/workspace/none"):
        await files.read("/workspace/none")
    with pytest.raises(NotFound):
        await files.stat("/workspace/none/below")
    with pytest.raises(NotFound):
        await files.list("/workspace/none", depth=1)
    with pytest.raises(InvalidRequest):
        await files.list("/workspace/file", depth=1)
    with pytest.raises(InvalidRequest, match="is a directory"):
        await files.read("/workspace/dir")
    with pytest.raises(InvalidRequest, match="is a directory"):
        await files.write("/workspace/dir", stream(b""), owner="user")
    with pytest.raises(InvalidRequest):
        await files.write("/workspace/file/below", stream(b""), owner="user")
    with pytest.raises(InvalidRequest):
        await files.write("/", stream(b""), owner="user")
    with pytest.raises(InvalidRequest, match="too long"):
        await files.write("/workspace/" + "n" * 300, stream(b""), owner="user")
    with pytest.raises(InvalidRequest, match="absolute"):
        await files.stat("workspace")
    with pytest.raises(InvalidRequest, match="NUL"):
        await files.stat("/work\0space")
    with pytest.raises(InvalidRequest, match="no account"):
        await files.write("/workspace/f", stream(b""), owner="ghost")


async def test_names_that_are_no_text_are_listed_readably_and_removed(root: Path, files):
    (root / "workspace/d").mkdir()
    os.close(os.open(os.fsencode(root / "workspace/d") + b"/caf\xe9", os.O_CREAT | os.O_WRONLY))
    (entry,) = await files.list("/workspace/d", depth=1)
    assert entry.name == "caf\ufffd"
    entry.path.encode()
    await files.remove("/workspace/d")
    assert not (root / "workspace/d").exists()


async def test_text_that_is_no_name_is_refused(files, stream):
    with pytest.raises(InvalidRequest, match="no valid text"):
        await files.stat("/workspace/\ud800")
    for metadata in ({"": "x"}, {"a\0b": "x"}, {"a": "\ud800"}):
        with pytest.raises(InvalidRequest, match="metadata"):
            await files.write("/workspace/f", stream(b"x"), owner="user", metadata=metadata)
    with pytest.raises(InvalidRequest, match="too large"):
        await files.write("/workspace/f", stream(b"x"), owner="user", metadata={"k" * 300: "x"})
    with pytest.raises(InvalidRequest, match="out of range"):
        await files.read("/workspace/f", offset=1 << 64)
