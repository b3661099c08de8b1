"""/workspace as the session's user sees it, on a real sandboxd: bootstrap, files, links, artifacts."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis import Redis as BlockingRedis

from console.fleet import artifacts, sessions
from console.fleet.models import Attachment, Session
from console.fleet.runtime import Runtime
from console.fleet.workspace import (
    INPUT_DIR,
    OUTPUT_DIR,
    command_argv,
    ensure_workspace,
    files_of,
    list_files,
    read_file,
    remove_file,
    write_file,
)
from console.tenants.models import Space
from sandboxes.errors import InvalidRequest, NotFound
from sandboxes.sessions import Outcome, Rollout
from sandboxes.types import ExecRequest, ExecResult, FileType
from tests.console.fleet.loop import ALICE, in_loop, resolve

pytestmark = pytest.mark.sandbox


@pytest.fixture(autouse=True)
def its_redis(redis: BlockingRedis) -> None:
    """Bindings of this test only."""


class Live:
    """A session of the test's, destroyed in the end."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.runtime = Runtime()

    async def __aenter__(self) -> Live:
        await self.again()
        return self

    async def again(self) -> sessions.LiveSession:
        self.session = await resolve(self.runtime, self.space)
        self.client, self.sandbox = self.session.client, self.session.sandbox
        self.files = files_of(self.client)
        return self.session

    async def sh(self, script: str) -> ExecResult:
        request = ExecRequest(argv=command_argv(ExecRequest.shell_argv(script)), cwd="/workspace")
        return await self.client.run(self.sandbox, request)

    async def read(self, path: str) -> bytes:
        async with read_file(self.files, self.sandbox, path) as (_, chunks):
            return b"".join([chunk async for chunk in chunks])

    async def stage(self, name: str, data: bytes) -> Attachment:
        return await sessions.stage(
            runtime=self.runtime,
            space=self.space,
            session_id="talk",
            name=name,
            data=_chunks(data),
            actor=ALICE,
        )

    async def archive(self) -> zipfile.ZipFile:
        stream = await artifacts.zip_stream(client=self.client, sandbox=self.sandbox)
        return zipfile.ZipFile(io.BytesIO(b"".join([chunk async for chunk in stream])))

    async def __aexit__(self, *failure: object) -> None:
        await sessions.destroy(
            runtime=self.runtime, space=self.space, session_id="talk", actor=ALICE
        )
        await self.runtime.aclose()


async def _chunks(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 65536):
        yield data[start : start + 65536]


@in_loop
async def test_what_a_program_did_to_the_two_directories_is_mended(real_space: Space) -> None:
    async with Live(real_space) as live:
        plain = ExecRequest.shell_argv(
            f"rm -rf {INPUT_DIR} {OUTPUT_DIR}; ln -s /etc {INPUT_DIR}; echo mine > {OUTPUT_DIR}"
        )
        await live.client.run(live.sandbox, ExecRequest(argv=plain))
        result = await live.sh(f"stat -c '%F %U %a' {INPUT_DIR} {OUTPUT_DIR}; id -un; echo done")
        assert result.stdout.decode().splitlines() == [
            "directory user 775",
            "directory user 775",
            "user",
            "done",
        ]
        assert result.stderr == b""
        assert (await live.sh("cat /workspace/output.aside.*")).stdout == b"mine\n"
        assert (await live.sh("ls -ld /etc")).stdout.split()[2] == b"root"

        await live.sh(f"chmod 000 {OUTPUT_DIR}")
        await ensure_workspace(live.client, live.sandbox)
        assert (await live.sh(f"touch {OUTPUT_DIR}/x")).ok


@in_loop
async def test_the_bootstrap_changes_nothing_about_a_command(real_space: Space) -> None:
    async with Live(real_space) as live:
        missing = ExecRequest(argv=command_argv(("no-such-command",)))
        assert (await live.client.run(live.sandbox, missing)).exit_code == 127
        odd = ("printf", "%s|", "a b", "$HOME", "'", "")
        result = await live.client.run(live.sandbox, ExecRequest(argv=command_argv(odd)))
        assert result.stdout == b"a b|$HOME|'||"
        piped = ExecRequest(argv=command_argv(("cat",)), stdin=b"through")
        assert (await live.client.run(live.sandbox, piped)).stdout == b"through"


@in_loop
async def test_files_are_read_and_written_as_the_user_and_never_through_a_link(
    real_space: Space,
) -> None:
    async with Live(real_space) as live:
        files, sandbox = live.files, live.sandbox
        entry = await write_file(files, sandbox, "notes/today.txt", _chunks(b"hello"))
        assert (entry.owner, entry.size_bytes) == ("user", 5)
        assert await live.read("/workspace/notes/today.txt") == b"hello"

        await live.sh("ln -s /etc/passwd pw; ln -s /etc etc; ln -s notes inside; ln -s /tmp out")
        for path in ("pw", "etc/passwd", "inside/today.txt"):
            with pytest.raises(InvalidRequest, match="links are not followed"):
                await live.read(path)
        for path in ("pw", "out/new.txt"):
            with pytest.raises(InvalidRequest, match="links are not followed"):
                await write_file(files, sandbox, path, _chunks(b"x"))
        with pytest.raises(InvalidRequest, match="links are not followed"):
            await list_files(files, sandbox, "etc")
        with pytest.raises(InvalidRequest, match="links are not followed"):
            await remove_file(files, sandbox, "out/x")
        assert (await live.sh("test ! -e /tmp/new.txt")).ok

        listed = {entry.name: entry for entry in await list_files(files, sandbox, ".")}
        assert listed["pw"].type is FileType.SYMLINK
        assert listed["pw"].link_target == "/etc/passwd"
        assert not any("passwd" in e.path for e in await list_files(files, sandbox, ".", depth=9))

        await remove_file(files, sandbox, "pw")
        await remove_file(files, sandbox, "pw")
        assert (await live.sh("test -s /etc/passwd")).ok, "the link went, not what it led to"
        for path in ("../etc/passwd", "/etc/passwd", "/workspace/../etc/passwd"):
            with pytest.raises(InvalidRequest, match="outside /workspace"):
                await live.read(path)
        with pytest.raises(InvalidRequest, match="larger than"):
            await write_file(files, sandbox, "big", _chunks(b"x" * 100_000), max_bytes=70_000)
        with pytest.raises(NotFound):
            await live.read("big")


@in_loop
async def test_artifacts_are_a_tree_and_a_zip_without_what_links_lead_to(
    real_space: Space,
) -> None:
    async with Live(real_space) as live:
        made = await live.sh(
            "cd output && mkdir -p a/b empty && echo one > a/one.txt && echo two > a/b/二.txt "
            "&& ln -s /etc/passwd secret && ln -s /etc dir && ln -s a/one.txt near "
            "&& mkfifo pipe && chmod 755 a/one.txt"
        )
        assert made.ok, made.stderr
        tree = await artifacts.tree(client=live.client, sandbox=live.sandbox)
        kinds = {entry.path.removeprefix(f"{OUTPUT_DIR}/"): entry.type.value for entry in tree}
        assert kinds == {
            "a": "directory",
            "a/b": "directory",
            "a/b/二.txt": "file",
            "a/one.txt": "file",
            "dir": "symlink",
            "empty": "directory",
            "near": "symlink",
            "pipe": "other",
            "secret": "symlink",
        }
        archive = await live.archive()
        assert archive.testzip() is None
        assert sorted(archive.namelist()) == ["a/", "a/b/", "a/b/二.txt", "a/one.txt", "empty/"]
        assert archive.read("a/b/二.txt") == b"two\n"
        assert archive.getinfo("a/one.txt").external_attr >> 16 & 0o777 == 0o755


@in_loop
async def test_a_folder_that_becomes_a_link_after_the_listing_gives_nothing_away(
    real_space: Space,
) -> None:
    async with Live(real_space) as live:
        await live.sh("mkdir output/etc && echo mine > output/etc/passwd && echo z > output/z")
        stream = await artifacts.zip_stream(client=live.client, sandbox=live.sandbox)
        await live.sh("rm -r output/etc && ln -s /etc output/etc")
        archive = zipfile.ZipFile(io.BytesIO(b"".join([chunk async for chunk in stream])))
        assert archive.namelist() == ["etc/", "z"]


@in_loop
async def test_a_zip_takes_no_memory(real_space: Space) -> None:
    async with Live(real_space) as live:
        made = await live.sh("cd output && for i in 1 2; do head -c 24M /dev/urandom > $i; done")
        assert made.ok, made.stderr
        stream = await artifacts.zip_stream(client=live.client, sandbox=live.sandbox)
        tracemalloc.start()
        size = 0
        async for chunk in stream:
            size += len(chunk)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert size > 48 * 1024**2
        assert peak < 4 * 1024**2


@in_loop
async def test_attachments_are_there_again_before_the_first_command_after_a_rebuild(
    real_space: Space,
) -> None:
    async with Live(real_space) as live:
        await live.stage("data.csv", b"a,b\n1,2\n")
        await live.stage("deep/er/x.bin", bytes(range(256)) * 2000)
        await live.stage("data.csv", b"a,b\n3,4\n")
        assert await Attachment.objects.acount() == 2
        assert (await live.sh("cat input/data.csv")).stdout == b"a,b\n3,4\n"
        before = live.sandbox.id
        report = await live.runtime.sessions.mark_stale(
            tenant=real_space.tenant_id, space=real_space.pk, why="test", rollout=Rollout.NEXT_TURN
        )
        assert report.marked == 1
        assert (await live.again()).resolved.outcome is Outcome.REBUILT
        assert live.sandbox.id != before
        # No bootstrap of this command's own: what it sees was there before it.
        look = ExecRequest.shell_argv("cd input && sha256sum data.csv deep/er/x.bin; stat -c %U *")
        result = await live.client.run(live.sandbox, ExecRequest(argv=look, cwd="/workspace"))
        lines = result.stdout.decode().splitlines()
        rows = {row.path: row.digest async for row in Attachment.objects.all()}
        assert lines == [
            f"{rows['data.csv']}  data.csv",
            f"{rows['deep/er/x.bin']}  deep/er/x.bin",
            "user",
            "user",
        ]


@in_loop
async def test_a_sandbox_that_is_claimed_gets_only_what_it_lacks(
    real_space: Space, redis: BlockingRedis
) -> None:
    async with Live(real_space) as live:
        await live.stage("kept.txt", b"as staged")
        await live.stage("lost.txt", b"as staged")
        await live.sh("echo edited > input/kept.txt; rm input/lost.txt")
        redis.flushall()
        assert (await live.again()).resolved.outcome is Outcome.CLAIMED
        assert await live.read("input/kept.txt") == b"edited\n"
        assert await live.read("input/lost.txt") == b"as staged"


@in_loop
async def test_a_destroyed_session_leaves_no_attachment(real_space: Space, media: Path) -> None:
    async with Live(real_space) as live:
        await live.stage("a.txt", b"a")
        await live.stage("b.txt", b"b")
        await sessions.unstage(
            runtime=live.runtime,
            space=real_space,
            session_id="talk",
            name="a.txt",
            actor=ALICE,
        )
        assert [e.name for e in await list_files(live.files, live.sandbox, "input")] == ["b.txt"]
        session = (await Session.objects.aget()).pk
        folder = media / "attachments" / session
        assert folder.is_dir()
    assert await Attachment.objects.acount() == 0
    assert not folder.exists()
