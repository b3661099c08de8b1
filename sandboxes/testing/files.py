"""Files: streams, names, links, directories."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sandboxes.client import SandboxClient
from sandboxes.errors import InvalidRequest, NotFound, SandboxError
from sandboxes.testing.base import Contract, chunks, files_of, text_of, unique
from sandboxes.testing.memory import PeakMemory
from sandboxes.types import FileType, Sandbox

__all__ = ["DirectoryContract", "FileContract", "FileLinkContract", "FileStreamContract"]

MIB = 1024 * 1024

ODD_NAMES = [
    "with space",
    "图表 报告.xlsx",
    "é-combining-é",
    "quote'\"$HOME`",
    "100%25+&=?#;",
    "-rf",
    "new\nline",
    "…" * 60,
]


async def read(client: SandboxClient, box: Sandbox, path: str, user: str = "user") -> bytes:
    async with files_of(client).read(box, path, user=user) as stream:
        return b"".join([chunk async for chunk in stream])


class FileContract(Contract):
    stands_on = ("files",)

    async def test_what_is_written_is_read(self, client: SandboxClient, box: Sandbox) -> None:
        data = bytes(range(256)) * 100
        await files_of(client).write(box, "/home/user/data.bin", data)
        assert await read(client, box, "/home/user/data.bin") == data

    async def test_commands_see_files_and_files_see_commands(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        await files_of(client).write(box, "/workspace/in.txt", b"hello")
        assert await text_of(client, box, "cat /workspace/in.txt") == "hello"
        await text_of(client, box, "echo made > /workspace/out.txt")
        assert await read(client, box, "/workspace/out.txt") == b"made\n"

    async def test_an_empty_file(self, client: SandboxClient, box: Sandbox) -> None:
        await files_of(client).write(box, "/tmp/empty", b"")
        assert await read(client, box, "/tmp/empty") == b""
        assert (await files_of(client).stat(box, "/tmp/empty")).size_bytes == 0

    async def test_writing_replaces_the_whole_file(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        await files_of(client).write(box, "/tmp/f", b"a long first version")
        await files_of(client).write(box, "/tmp/f", b"short")
        assert await read(client, box, "/tmp/f") == b"short"

    @pytest.mark.parametrize("user", ["user", "root"])
    async def test_a_new_file_is_its_users(
        self, client: SandboxClient, box: Sandbox, user: str
    ) -> None:
        await files_of(client).write(box, "/tmp/owned/by/me", b"x", user=user)
        entry = await files_of(client).stat(box, "/tmp/owned/by/me")
        assert (entry.owner, entry.group) == (user, user)
        assert stat.S_IMODE(entry.mode) == 0o644
        parent = await files_of(client).stat(box, "/tmp/owned/by")
        assert parent.owner == user
        assert parent.type is FileType.DIRECTORY

    @pytest.mark.parametrize("name", ODD_NAMES)
    async def test_names_of_any_characters(
        self, client: SandboxClient, box: Sandbox, name: str
    ) -> None:
        files = files_of(client)
        path = f"/home/user/odd/{name}"
        await files.write(box, path, name.encode())
        assert await read(client, box, path) == name.encode()
        assert (await files.stat(box, path)).name == name
        listed = await files.list(box, "/home/user/odd")
        assert [(entry.name, entry.path) for entry in listed] == [(name, path)]
        await files.remove(box, path)
        assert await files.list(box, "/home/user/odd") == []

    async def test_a_missing_file_is_not_found(self, client: SandboxClient, box: Sandbox) -> None:
        with pytest.raises(NotFound):
            await read(client, box, "/tmp/missing")
        with pytest.raises(NotFound):
            await files_of(client).stat(box, "/tmp/missing")
        with pytest.raises(NotFound):
            await files_of(client).stat(box, "/no/such/parent/file")

    async def test_a_directory_is_no_file(self, client: SandboxClient, box: Sandbox) -> None:
        with pytest.raises(InvalidRequest):
            await read(client, box, "/home/user")
        with pytest.raises(InvalidRequest):
            await files_of(client).write(box, "/home/user", b"x")

    async def test_a_file_is_no_directory(self, client: SandboxClient, box: Sandbox) -> None:
        await files_of(client).write(box, "/tmp/file", b"x")
        with pytest.raises(SandboxError) as caught:
            await files_of(client).write(box, "/tmp/file/below", b"x")
        assert caught.value.kind in ("invalid_request", "conflict")
        assert await read(client, box, "/tmp/file") == b"x"

    @pytest.mark.parametrize("path", ["relative.txt", "", "~/x", "/tmp/a\0b"])
    async def test_only_absolute_paths(
        self, client: SandboxClient, box: Sandbox, path: str
    ) -> None:
        with pytest.raises(InvalidRequest):
            await files_of(client).write(box, path, b"x")
        with pytest.raises(InvalidRequest):
            await files_of(client).stat(box, path)

    async def test_dots_do_not_climb_out(self, client: SandboxClient, box: Sandbox) -> None:
        hosts = await text_of(client, box, "cat /etc/passwd")
        climbed = await read(client, box, "/tmp/../../../../../etc/passwd")
        assert climbed.decode() == hosts

    async def test_stat_tells_all(self, client: SandboxClient, box: Sandbox) -> None:
        await text_of(client, box, "printf 12345 > /tmp/s; chmod 750 /tmp/s")
        entry = await files_of(client).stat(box, "/tmp/s")
        assert (entry.name, entry.path, entry.type) == ("s", "/tmp/s", FileType.FILE)
        assert (entry.size_bytes, stat.S_IMODE(entry.mode)) == (5, 0o750)
        assert abs(entry.modified_at - datetime.now(UTC)) < timedelta(minutes=5)
        assert entry.link_target is None

    async def test_an_unknown_user_is_an_invalid_request(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        with pytest.raises(InvalidRequest):
            await files_of(client).write(box, "/tmp/f", b"x", user="nobody-of-that-name")


class FileStreamContract(Contract):
    stands_on = ("files",)

    async def test_a_hundred_megabytes_up_and_down_with_flat_memory(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        total = 100 * MIB
        sent, received = hashlib.sha256(), hashlib.sha256()

        async def source() -> AsyncIterator[bytes]:
            async for chunk in chunks(total):
                sent.update(chunk)
                yield chunk

        with PeakMemory() as peak:
            await files_of(client).write(box, "/home/user/large", source())
            size = 0
            async with files_of(client).read(box, "/home/user/large") as stream:
                async for chunk in stream:
                    received.update(chunk)
                    size += len(chunk)
        assert size == total
        assert sent.digest() == received.digest()
        assert (await files_of(client).stat(box, "/home/user/large")).size_bytes == total
        assert peak.grown_bytes < 40 * MIB

    async def test_reading_may_stop_early(self, client: SandboxClient, box: Sandbox) -> None:
        await text_of(client, box, "head -c 50000000 /dev/zero > /tmp/zeros")
        async with files_of(client).read(box, "/tmp/zeros") as stream:
            assert len(await anext(stream)) > 0
        assert await text_of(client, box, "echo fine") == "fine\n"

    async def test_a_failing_source_fails_the_write(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        async def source() -> AsyncIterator[bytes]:
            yield b"x" * 100_000
            raise RuntimeError("the source broke")

        with pytest.raises(RuntimeError, match="the source broke"):
            await files_of(client).write(box, "/tmp/half", source())
        await files_of(client).write(box, "/tmp/half", b"whole")
        assert await read(client, box, "/tmp/half") == b"whole"

    async def test_nothing_is_written_once_a_failing_source_has_raised(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        """So that a caller can clean up after it, whichever of the two the server would hear first."""

        async def source() -> AsyncIterator[bytes]:
            yield b"x" * 70_000
            raise RuntimeError("the source broke")

        for _ in range(10):
            with pytest.raises(RuntimeError, match="the source broke"):
                await files_of(client).write(box, "/tmp/gone", source())
            await files_of(client).remove(box, "/tmp/gone")
            with pytest.raises(NotFound):
                await files_of(client).stat(box, "/tmp/gone")


class DirectoryContract(Contract):
    stands_on = ("files",)

    async def test_make_dir_makes_parents_and_repeats(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        files = files_of(client)
        await files.make_dir(box, "/home/user/a/b/c")
        await files.make_dir(box, "/home/user/a/b/c")
        entry = await files.stat(box, "/home/user/a/b/c")
        assert (entry.type, entry.owner) == (FileType.DIRECTORY, "user")

    async def test_make_dir_over_a_file_is_invalid(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        await files_of(client).write(box, "/tmp/file", b"x")
        with pytest.raises(InvalidRequest):
            await files_of(client).make_dir(box, "/tmp/file")

    async def test_list_is_sorted_and_as_deep_as_asked(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        await text_of(
            client, box, "mkdir -p /tmp/t/b/c /tmp/t/a; touch /tmp/t/z /tmp/t/b/c/deep /tmp/t/b/y"
        )
        files = files_of(client)
        shallow = [(entry.path, entry.type) for entry in await files.list(box, "/tmp/t")]
        assert shallow == [
            ("/tmp/t/a", FileType.DIRECTORY),
            ("/tmp/t/b", FileType.DIRECTORY),
            ("/tmp/t/z", FileType.FILE),
        ]
        two = [entry.path for entry in await files.list(box, "/tmp/t", depth=2)]
        assert two == ["/tmp/t/a", "/tmp/t/b", "/tmp/t/b/c", "/tmp/t/b/y", "/tmp/t/z"]
        three = [entry.path for entry in await files.list(box, "/tmp/t", depth=3)]
        assert "/tmp/t/b/c/deep" in three

    async def test_a_directory_of_many(self, client: SandboxClient, box: Sandbox) -> None:
        await text_of(client, box, "mkdir /tmp/many; cd /tmp/many; seq 3000 | xargs touch")
        assert len(await files_of(client).list(box, "/tmp/many")) == 3000

    async def test_list_of_what_is_no_directory(self, client: SandboxClient, box: Sandbox) -> None:
        with pytest.raises(NotFound):
            await files_of(client).list(box, "/tmp/missing")
        with pytest.raises(InvalidRequest):
            await files_of(client).list(box, "/etc/passwd")

    async def test_move_makes_parents_and_replaces_only_a_file(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        files = files_of(client)
        await files.write(box, "/tmp/m/a/one", b"one")
        await files.move(box, "/tmp/m/a", "/tmp/m/far/off/b")
        assert await read(client, box, "/tmp/m/far/off/b/one") == b"one"
        with pytest.raises(NotFound):
            await files.stat(box, "/tmp/m/a")
        await files.write(box, "/tmp/m/two", b"two")
        await files.move(box, "/tmp/m/two", "/tmp/m/far/off/b/one")
        assert await read(client, box, "/tmp/m/far/off/b/one") == b"two"
        await files.write(box, "/tmp/m/three", b"three")
        with pytest.raises(SandboxError):
            await files.move(box, "/tmp/m/three", "/tmp/m/far")
        with pytest.raises(NotFound):
            await files.move(box, "/tmp/m/none", "/tmp/m/some")

    async def test_remove_is_recursive_and_idempotent(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        files = files_of(client)
        await files.write(box, "/tmp/tree/a/b", b"x")
        await files.remove(box, "/tmp/tree")
        with pytest.raises(NotFound):
            await files.stat(box, "/tmp/tree")
        await files.remove(box, "/tmp/tree")


class FileLinkContract(Contract):
    """Links are made by whoever runs in the sandbox: none may lead out of it."""

    stands_on = ("files",)

    async def test_a_link_is_seen_as_one(self, client: SandboxClient, box: Sandbox) -> None:
        await text_of(
            client, box, "mkdir /tmp/l; ln -s /etc/passwd /tmp/l/to; ln -s /no /tmp/l/bad"
        )
        entry = await files_of(client).stat(box, "/tmp/l/to")
        assert (entry.type, entry.link_target) == (FileType.SYMLINK, "/etc/passwd")
        listed = await files_of(client).list(box, "/tmp/l")
        assert [(e.name, e.type) for e in listed] == [
            ("bad", FileType.SYMLINK),
            ("to", FileType.SYMLINK),
        ]

    async def test_a_link_inside_is_followed_inside(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        await text_of(client, box, "ln -s /../../../../../etc/passwd /tmp/inner")
        inside = await text_of(client, box, "cat /etc/passwd")
        assert (await read(client, box, "/tmp/inner")).decode() == inside

    async def test_a_link_to_the_host_reads_nothing(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        with tempfile.NamedTemporaryFile(prefix=f"outside-{unique()}-") as secret:
            secret.write(b"the host's secret")
            secret.flush()
            targets = [secret.name, f"/proc/1/root{secret.name}", f"/proc/self/root{secret.name}"]
            for number, target in enumerate(targets):
                link = f"/tmp/out-{number}"
                await text_of(client, box, f"ln -s {target} {link}")
                with pytest.raises(SandboxError):
                    await read(client, box, link, user="root")

    async def test_a_link_to_the_host_writes_and_removes_nothing(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        with tempfile.TemporaryDirectory(prefix="outside-") as directory:
            kept = Path(directory) / "kept"
            kept.write_bytes(b"untouched")
            await text_of(client, box, f"ln -s {directory} /tmp/way-out")
            for act in (
                files_of(client).write(box, "/tmp/way-out/kept", b"changed", user="root"),
                files_of(client).write(box, "/tmp/way-out/new", b"new", user="root"),
                files_of(client).make_dir(box, "/tmp/way-out/dir", user="root"),
                files_of(client).remove(box, "/tmp/way-out/kept", user="root"),
            ):
                try:
                    await act
                except SandboxError:
                    continue
            assert os.listdir(directory) == ["kept"]
            assert kept.read_bytes() == b"untouched"

    async def test_removing_a_link_keeps_its_target(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        await text_of(client, box, "mkdir /tmp/dir; touch /tmp/dir/f; ln -s /tmp/dir /tmp/alias")
        await files_of(client).remove(box, "/tmp/alias")
        assert (
            await text_of(client, box, "ls /tmp/dir; ls -d /tmp/alias 2>/dev/null; true") == "f\n"
        )

    async def test_list_does_not_descend_into_links(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        await text_of(client, box, "mkdir -p /tmp/w/real; ln -s /tmp/w /tmp/w/loop")
        listed = [entry.path for entry in await files_of(client).list(box, "/tmp/w", depth=5)]
        assert listed == ["/tmp/w/loop", "/tmp/w/real"]
