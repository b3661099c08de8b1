"""The files of a session on its pages, on a real sandboxd: shown, fetched, brought, named, removed."""

from __future__ import annotations

import contextlib
import io
import zipfile
from collections.abc import AsyncIterator
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import AsyncClient
from django.urls import reverse
from redis import Redis as BlockingRedis

from console.audit.models import AuditEntry
from console.fleet import sessions
from console.fleet.models import Attachment, Session
from console.fleet.runtime import close_shared_runtime, shared_runtime
from console.fleet.workspace import command_argv
from console.tenants.models import Membership, Role, Space, User
from sandboxes.types import ExecRequest
from tests.console.fleet.loop import ALICE, in_loop, resolve, row_of

pytestmark = pytest.mark.sandbox

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 32


@pytest.fixture(autouse=True)
def its_redis(redis: BlockingRedis) -> None:
    """Bindings of this test only."""


class Desk:
    """An operator at a session's page."""

    def __init__(self, space: Space, browser: AsyncClient, row: Session) -> None:
        self.space, self.browser, self.row = space, browser, row

    def address(self, name: str) -> str:
        return reverse(f"web:{name}", args=[self.row.pk])

    async def get(self, name: str, /, **query: str) -> Any:
        return await self.browser.get(self.address(name), query)

    async def page(self, name: str = "session", **query: str) -> str:
        answer = await self.get(name, **query)
        assert answer.status_code == 200, answer.content.decode()
        return str(answer.content.decode())

    async def content(self, name: str, **query: str) -> bytes:
        answer = await self.get(name, **query)
        assert answer.status_code == 200
        return b"".join([chunk async for chunk in answer])

    async def post(self, name: str, /, **data: Any) -> Any:
        return await self.browser.post(self.address(name), data)

    async def sh(self, script: str) -> str:
        live = await resolve(shared_runtime(), self.space)
        argv = command_argv(ExecRequest.shell_argv(script))
        result = await live.client.run(live.sandbox, ExecRequest(argv=argv, cwd="/workspace"))
        assert result.ok, result.stderr
        return result.stdout.decode()


@contextlib.asynccontextmanager
async def a_desk(space: Space) -> AsyncIterator[Desk]:
    user = await User.objects.acreate(username="alice")
    await Membership.objects.acreate(
        user=user, tenant=space.tenant, space=space, role=Role.OPERATOR
    )
    browser = AsyncClient()
    await browser.aforce_login(user)
    try:
        await resolve(shared_runtime(), space)
        yield Desk(space, browser, await row_of(space))
    finally:
        await sessions.destroy(
            runtime=shared_runtime(), space=space, session_id="talk", actor=ALICE
        )
        await close_shared_runtime()


@in_loop
async def test_a_folder_is_listed_in_the_order_asked_for(real_space: Space) -> None:
    async with a_desk(real_space) as desk:
        await desk.sh(
            "mkdir w; cd w; mkdir zdir; printf 333 > b.txt; printf 1 > C.txt; printf 22 > a.txt; "
            "touch -d 2001-01-01 b.txt; touch -d 2002-02-02 C.txt; touch -d 2003-03-03 a.txt; "
            "ln -s /etc/passwd link"
        )

        async def order(**query: str) -> list[str]:
            page = await desk.page(path="/workspace/w", **query)
            names = ("zdir/", "a.txt", "b.txt", "C.txt")
            return sorted(names, key=lambda name: page.index(f">{name}</a>"))

        assert await order() == ["zdir/", "a.txt", "b.txt", "C.txt"]
        assert await order(down="1") == ["zdir/", "C.txt", "b.txt", "a.txt"]
        assert await order(sort="size") == ["zdir/", "C.txt", "a.txt", "b.txt"]
        assert await order(sort="changed", down="1") == ["zdir/", "a.txt", "C.txt", "b.txt"]
        assert await order(sort="no such") == await order()
        page = await desk.page(path="/workspace/w")
        assert "/etc/passwd" in page
        assert "file/?path=/workspace/w/link" not in page
        outside = await desk.page(path="/etc")
        assert "is outside /workspace" in outside


@in_loop
async def test_text_is_shown_pictures_too_and_nothing_runs(real_space: Space) -> None:
    async with a_desk(real_space) as desk:
        await desk.sh(
            "mkdir w; cd w; printf '<script>alert(1)</script> 你好' > page.html; : > empty; "
            "printf 'a\\0b' > data.bin; printf '\\211PNG\\r\\n\\032\\n0000' > pic.png; "
            "printf '<svg onload=alert(1)>' > pic.svg; ln -s /etc/passwd link; "
            "head -c 300000 /dev/zero | tr '\\0' x > long.txt; cp pic.png fake.txt"
        )
        shown = await desk.page("show-file", path="w/page.html")
        assert "&lt;script&gt;alert(1)&lt;/script&gt; 你好" in shown
        assert "This file is empty" in await desk.page("show-file", path="w/empty")
        assert "This is no text" in await desk.page("show-file", path="w/data.bin")
        assert "download it for the rest" in await desk.page("show-file", path="w/long.txt")
        assert "&lt;svg onload" in await desk.page("show-file", path="w/pic.svg")
        assert "<img src=" in await desk.page("show-file", path="w/pic.png")

        picture = await desk.get("show-picture", path="w/pic.png")
        assert picture.headers["Content-Type"] == "image/png"
        assert picture.headers["Content-Security-Policy"] == "sandbox; default-src 'none'"
        assert picture.headers["X-Content-Type-Options"] == "nosniff"
        assert b"".join([chunk async for chunk in picture]).startswith(PNG[:8])
        for no_picture in ("w/page.html", "w/pic.svg", "w/link"):
            assert (await desk.get("show-picture", path=no_picture)).status_code == 422

        answer = await desk.get("download", path="w/page.html")
        assert answer.headers["Content-Type"] == "application/octet-stream"
        assert answer.headers["Content-Disposition"].startswith("attachment")
        for name in ("show-file", "download"):
            assert (await desk.get(name, path="w/link")).status_code == 422
            assert (await desk.get(name, path="w/none")).status_code == 404
            assert (await desk.get(name, path="../etc/passwd")).status_code == 422


@in_loop
async def test_files_are_brought_named_and_removed_anywhere(real_space: Space) -> None:
    async with a_desk(real_space) as desk:
        assert (await desk.post("new-folder", folder="/workspace", name="work")).status_code == 302
        assert (await desk.post("new-folder", folder="/workspace", name="../x")).status_code == 422
        files = [SimpleUploadedFile("a.txt", b"one"), SimpleUploadedFile("b.txt", b"two")]
        answer = await desk.post("upload-files", folder="/workspace/work", files=files)
        assert answer.headers["Location"].endswith("?path=%2Fworkspace%2Fwork#files")
        assert await desk.sh("cd work; stat -c '%n %U %a' *") == "a.txt user 644\nb.txt user 644\n"
        assert await Attachment.objects.acount() == 0, "only what lies in input is one"

        await desk.post("rename-file", path="/workspace/work/a.txt", name="deep/er/c.txt")
        assert await desk.sh("cat work/deep/er/c.txt") == "one"
        taken = await desk.post("rename-file", path="/workspace/work/b.txt", name="deep")
        assert taken.status_code == 422
        assert "already" in taken.content.decode()
        into = await desk.post("rename-file", path="/workspace/work", name="work/in/it")
        assert into.status_code == 422
        out = await desk.post("rename-file", path="/workspace/work/b.txt", name="../../etc/b")
        assert out.status_code == 422
        kept = await desk.post("rename-file", path="/workspace/output", name="results")
        assert kept.status_code == 422

        asked = await desk.page("remove-file", path="/workspace/work")
        assert "with 4 entries in it" in asked
        assert await desk.sh("ls work/b.txt") == "work/b.txt\n", "to ask removes nothing"
        await desk.sh("ln -s /etc/passwd work/link; ln -s /etc out")
        await desk.post("remove-file", path="/workspace/work")
        assert await desk.sh("ls; test -s /etc/passwd") == "input\nout\noutput\n"
        through = await desk.post("remove-file", path="/workspace/out/passwd")
        assert through.status_code == 422
        assert "links are not followed" in through.content.decode()

        entries = AuditEntry.objects.filter(action__startswith="session.").order_by("pk")
        assert [entry.action async for entry in entries] == [
            "session.make_dir",
            "session.write",
            "session.move",
            "session.remove",
        ]


@in_loop
async def test_attachments_follow_their_files(real_space: Space) -> None:
    async with a_desk(real_space) as desk:
        names = ("a.csv", "b.csv", "c.csv")
        files = [SimpleUploadedFile(name, name.encode()) for name in names]
        await desk.post("upload-files", folder="/workspace/input", files=files)
        await desk.post("rename-file", path="/workspace/input/a.csv", name="kept/z.csv")
        await desk.post("rename-file", path="/workspace/input/b.csv", name="../b.csv")
        await desk.post("remove-file", path="/workspace/input/c.csv")
        assert [row.path async for row in Attachment.objects.all()] == ["kept/z.csv"]
        await desk.post("rename-file", path="/workspace/input/kept", name="moved")
        assert [row.path async for row in Attachment.objects.all()] == ["moved/z.csv"]
        answer = await desk.post("rebuild-session")
        assert answer.status_code == 302
        assert await desk.sh("find . -type f -exec cat {} +; ls") == "a.csvinput\noutput\n"


@in_loop
async def test_any_folder_comes_out_as_a_zip(real_space: Space) -> None:
    async with a_desk(real_space) as desk:
        await desk.sh("mkdir -p w/a; echo 1 > w/a/one; ln -s /etc/passwd w/secret")
        archive = zipfile.ZipFile(io.BytesIO(await desk.content("download-all", path="w")))
        assert archive.namelist() == ["a/", "a/one"]
        assert (await desk.get("download-all", path="/etc")).status_code == 422


@in_loop
async def test_a_look_wakes_nothing_and_makes_nothing(real_space: Space) -> None:
    async with a_desk(real_space) as desk:
        await desk.sh("echo x > x.txt")
        await desk.post("pause-session")
        page = await desk.page()
        assert "can be seen once it is awake" in page
        client = await shared_runtime().client(real_space.backend)
        assert (await client.get(desk.row.sandbox_id)).state.value == "paused"
        assert (await desk.post("resume-session")).status_code == 302
        assert "x.txt" in await desk.page()
        await desk.post("destroy-session")
        assert "Without a sandbox there are no files" in await desk.page()
        assert (await desk.get("download", path="x.txt")).status_code == 404
        assert (await Session.objects.aget(pk=desk.row.pk)).state == "destroyed"
