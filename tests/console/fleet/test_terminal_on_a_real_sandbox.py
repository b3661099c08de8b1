"""A terminal over its WebSocket, on a real sandboxd: typed, shown, found again, and ended when it must be."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from django.conf import settings
from django.test import AsyncClient
from redis import Redis as BlockingRedis

from console.audit.models import AuditEntry
from console.fleet import sessions
from console.fleet.models import Session
from console.fleet.runtime import close_shared_runtime, shared_runtime
from console.tenants.models import Membership, Role, Space, User
from console.web.terminal import app as terminals
from tests.console.fleet.loop import ALICE, in_loop, resolve, row_of
from tests.sandboxes.daemon import Daemon

pytestmark = pytest.mark.sandbox


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, redis: BlockingRedis) -> None:
    monkeypatch.setattr(terminals, "CHECK_S", 0.2)
    # The test's transaction is seen on its own thread only.
    monkeypatch.setattr(terminals, "Database", contextlib.nullcontext)


class Page:
    """The browser's end of one line."""

    def __init__(self, app: terminals.TerminalApp, scope: dict[str, Any]) -> None:
        self._to_server: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue(maxsize=16)
        self._to_server.put_nowait({"type": "websocket.connect"})
        self.shown = b""
        self.told: list[dict[str, Any]] = []
        self.acknowledges = True
        self._task = asyncio.ensure_future(app(scope, self._to_server.get, self.sent.put))

    def type(self, text: str) -> None:
        self._to_server.put_nowait({"type": "websocket.receive", "bytes": text.encode()})

    def wish(self, **wish: Any) -> None:
        self._to_server.put_nowait({"type": "websocket.receive", "text": json.dumps(wish)})

    async def next(self) -> dict[str, Any]:
        try:
            async with asyncio.timeout(15):
                message = await self.sent.get()
        except TimeoutError:
            raise AssertionError(f"shown {self.shown[-500:]!r}, told {self.told}") from None
        if data := message.get("bytes"):
            self.shown += data
            if self.acknowledges:
                self.wish(ack=len(data))
        elif text := message.get("text"):
            self.told.append(json.loads(text))
        return message

    async def until_shown(self, text: str) -> str:
        while text.encode() not in self.shown:
            await self.next()
        return self.shown.decode(errors="replace")

    async def until_prompt(self) -> None:
        """What is typed earlier may be dropped with what was interrupted."""
        while not self.shown.endswith(b"$ "):
            await self.next()

    async def until_told(self, what: str) -> dict[str, Any]:
        while not any(told["what"] == what for told in self.told):
            await self.next()
        return next(told for told in self.told if told["what"] == what)

    async def ended(self) -> dict[str, Any]:
        told = await self.until_told("end")
        assert (await self.next())["type"] == "websocket.close"
        await self._task
        return told

    async def leave(self) -> None:
        self._to_server.put_nowait({"type": "websocket.disconnect", "code": 1001})
        while not self._task.done():
            with contextlib.suppress(asyncio.QueueEmpty):
                self.sent.get_nowait()
            await asyncio.sleep(0.01)
        await self._task


class Desk:
    """An operator at a session's page."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.app = terminals.TerminalApp()
        self.browser = AsyncClient()

    async def arrive(self, role: str = Role.OPERATOR) -> None:
        self.user = await User.objects.acreate(username="alice")
        self.membership = await Membership.objects.acreate(
            user=self.user, tenant=self.space.tenant, space=self.space, role=role
        )
        await self.browser.aforce_login(self.user)

    async def page(self, *, origin: str = "http://localhost", **query: object) -> Page:
        row = await row_of(self.space)
        cookie = self.browser.cookies[settings.SESSION_COOKIE_NAME].value
        headers = {
            "host": "localhost",
            "origin": origin,
            "cookie": f"{settings.SESSION_COOKIE_NAME}={cookie}",
        }
        scope = {
            "type": "websocket",
            "path": f"/sessions/{row.pk}/terminal",
            "query_string": "&".join(f"{k}={v}" for k, v in query.items()).encode(),
            "headers": [(k.encode(), v.encode()) for k, v in headers.items() if v],
            "client": ("192.0.2.7", 1),
            "extensions": {},
        }
        return Page(self.app, scope)


@contextlib.asynccontextmanager
async def a_desk(space: Space, role: str = Role.OPERATOR) -> AsyncIterator[Desk]:
    desk = Desk(space)
    await desk.arrive(role)
    try:
        await resolve(shared_runtime(), space)
        yield desk
    finally:
        await sessions.destroy(
            runtime=shared_runtime(), space=space, session_id="talk", actor=ALICE
        )
        await close_shared_runtime()


async def audited() -> list[tuple[str, dict[str, Any]]]:
    entries = AuditEntry.objects.filter(action__startswith="session.terminal").order_by("pk")
    return [(entry.action, entry.details) async for entry in entries]


@in_loop
async def test_it_is_the_user_s_shell_in_the_workspace(real_space: Space) -> None:
    async with a_desk(real_space) as desk:
        page = await desk.page(cols=91, rows=29)
        assert (await page.until_told("open"))["same"] is False
        page.type("echo $(id -un):$PWD:$WEKNORA_SKILL_OUTPUT_DIR:$(stty size)-on; ls -m\r")
        seen = await page.until_shown("on\r\n")
        await page.until_shown("input")
        assert "user:/workspace:/workspace/output:29 91-on" in seen
        page.wish(size=[100, 40])
        page.type("echo 你好-$(stty size)\r")
        await page.until_shown("你好-40 100")
        # One process from its first word on: between two the shell itself would take the key.
        page.type("sh -c 'echo now-$((1 + 1)); exec sleep 300'\r")
        await page.until_shown("now-2")
        page.type("\x03")
        await page.until_shown("^C")
        await page.until_prompt()
        page.type("exit 4\r")
        assert (await page.ended()) | {"text": ""} == {
            "what": "end",
            "why": "exit",
            "text": "",
            "code": 4,
        }
        (opened, how), (closed, details) = await audited()
        assert (opened, how) == ("session.terminal_open", {"shell": "new"})
        assert (closed, details["ended"]) == ("session.terminal_close", "exit")
        assert 0 <= details["duration_s"] < 60


@in_loop
async def test_a_page_that_lost_its_line_comes_back_to_the_same_shell(real_space: Space) -> None:
    async with a_desk(real_space) as desk:
        page = await desk.page()
        page.type("mark=$((20 + 2)); echo set-$mark\r")
        await page.until_shown("set-22")
        page.type("(sleep 0.3; echo late-$((1 + 1)) ) & echo soon-$((1 + 1))\r")
        await page.until_shown("soon-2")
        await page.leave()
        # As after a restart of the web process: nothing is known but what is in the sandbox.
        await close_shared_runtime()
        desk.app = terminals.TerminalApp()
        page = await desk.page(again=1)
        assert (await page.until_told("open"))["same"] is True
        page.type("echo still-$mark\r")
        await page.until_shown("still-22")
        await page.until_shown("late-2")
        other = await desk.page()
        assert (await other.until_told("open"))["same"] is True
        other.wish(kill=True)
        assert (await other.ended())["why"] == (await page.ended())["why"] == "exit"
        # A moment later nobody knows the shell any more, and a new one is begun only if asked for.
        page = await desk.page()
        assert (await page.until_told("open"))["same"] is False
        await page.leave()


@in_loop
async def test_nobody_comes_back_to_a_shell_that_never_was(real_space: Space) -> None:
    async with a_desk(real_space) as desk:
        assert (await (await desk.page(again=1)).ended())["why"] == "over"


@in_loop
async def test_it_ends_with_the_session_in_words_and_wakes_nothing(real_space: Space) -> None:
    async with a_desk(real_space) as desk:
        page = await desk.page()
        await page.until_told("open")
        await sessions.pause(
            runtime=shared_runtime(),
            session=await Session.objects.select_related("backend").aget(),
            actor=ALICE,
        )
        assert (await page.ended())["why"] == "paused"
        assert (await (await desk.page(again=1)).ended())["why"] == "paused"
        page = await desk.page()
        assert (await page.until_told("open"))["same"] is True, "asked for, it wakes where it was"
        await sessions.destroy(
            runtime=shared_runtime(), space=real_space, session_id="talk", actor=ALICE
        )
        assert (await page.ended())["why"] == "gone"
        assert (await (await desk.page(again=1)).ended())["why"] == "gone"


@in_loop
async def test_it_is_let_go_when_nothing_is_typed(real_space: Space) -> None:
    await Space.objects.filter(pk=real_space.pk).aupdate(idle_timeout_s=2)
    async with a_desk(real_space) as desk:
        page = await desk.page()
        page.type("while true; do date; sleep 0.2; done\r")
        assert (await page.until_told("idle_soon"))["left_s"] <= 1
        assert (await page.ended())["why"] in ("idle", "paused")


@in_loop
async def test_it_ends_when_the_person_may_no_longer(real_space: Space) -> None:
    async with a_desk(real_space) as desk:
        first, second = await desk.page(), await desk.page()
        await first.until_told("open")
        await second.until_told("open")
        await Membership.objects.filter(pk=desk.membership.pk).aupdate(role=Role.VIEWER)
        assert (await first.ended())["why"] == "denied"
        assert (await second.ended())["why"] == "denied"
        refused = await desk.page()
        assert (await refused.next())["type"] == "websocket.close"
        await Membership.objects.filter(pk=desk.membership.pk).aupdate(role=Role.OPERATOR)
        page = await desk.page()
        await page.until_told("open")
        await desk.browser.session.aflush()
        assert (await page.ended())["why"] == "denied"


@pytest.mark.parametrize("origin", ["", "null", "http://evil.example", "http://localhost:81"])
@in_loop
async def test_no_other_site_opens_one(real_space: Space, origin: str) -> None:
    desk = Desk(real_space)
    await desk.arrive()
    await Session.objects.acreate(
        space=real_space, session_id="talk", backend=real_space.backend, sandbox_id="x"
    )
    page = await desk.page(origin=origin)
    assert (await page.next())["type"] == "websocket.close"
    assert await audited() == []


@in_loop
async def test_output_that_a_page_does_not_draw_waits_where_it_is(real_space: Space) -> None:
    async with a_desk(real_space) as desk:
        page = await desk.page()
        await page.until_told("open")
        page.acknowledges = False
        tracemalloc.start()
        page.type("yes $(seq 100 | tr '\\n' ' ')\r")
        while len(page.shown) < 512 * 1024:
            await page.next()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                while True:
                    message = await page.sent.get()
                    page.shown += message.get("bytes", b"")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(page.shown) < 1024 * 1024
        assert peak < 16 * 1024**2
        page.type("\x03")
        page.acknowledges = True
        page.wish(ack=len(page.shown))
        page.type("echo alive-$((1 + 1))\r")
        await page.until_shown("alive-2")
        await page.leave()


@in_loop
async def test_nothing_that_is_made_up_ends_it(real_space: Space) -> None:
    async with a_desk(real_space) as desk:
        page = await desk.page(cols="x", rows="999999999")
        await page.until_told("open")
        for wish in ({"size": [0, -5]}, {"size": ["a"]}, {"ack": -1}, {"kill": "no"}, {}):
            page.wish(**wish)
        for text in ("[" * 100_000, "not json", "7"):
            page._to_server.put_nowait({"type": "websocket.receive", "text": text})
        page.type("echo on-$((1 + 1))-$(stty size)\r")
        await page.until_shown("on-2-2 2")
        await page.leave()


@in_loop
async def test_a_paste_that_is_too_long_is_refused_and_the_shell_goes_on(
    real_space: Space,
) -> None:
    async with a_desk(real_space) as desk:
        page = await desk.page()
        await page.until_told("open")
        page.type("x" * (1024 * 1024 + 1))
        await page.until_told("too_much")
        page.type("echo on-$((1 + 1))\r")
        await page.until_shown("on-2")
        await page.leave()


@in_loop
async def test_a_line_breaks_with_the_daemon_and_a_new_shell_is_had_after(
    real_space: Space, sandboxd: Daemon
) -> None:
    async with a_desk(real_space) as desk:
        page = await desk.page()
        await page.until_told("open")
        sandbox_id = (await row_of(real_space)).sandbox_id
        await asyncio.to_thread(sandboxd.crash)
        assert (await page.ended())["why"] == "broken"
        await asyncio.to_thread(sandboxd.run)
        assert (await (await desk.page(again=1)).ended())["why"] == "over"
        page = await desk.page()
        assert (await page.until_told("open"))["same"] is False
        assert (await row_of(real_space)).sandbox_id == sandbox_id
        await page.leave()
