"""A terminal in a session's sandbox, for those who may run things there: `/sessions/PK/terminal`, a WebSocket.

Typing keeps the session awake; being open or showing output does not. After the space's idle time
without a key the line is let go, and the session may pause with the shell in it. The line also ends
within seconds of the person being signed out or losing the right. The shell outlives the line: a page
that lost it, or this process, comes back to the same one.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from asgiref.sync import sync_to_async
from django.utils import translation
from django.utils.translation import gettext as _
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from console.audit.services import record
from console.fleet import sessions as live
from console.fleet.database import Database
from console.web.terminal import shells
from console.web.terminal.line import Line, LineClosed, sane
from console.web.terminal.shells import Over, Paused, Shell
from console.web.terminal.visitors import Visitor, is_same_origin, language_of, visitor
from sandboxes.errors import Conflict, SandboxError, TimedOut, Unavailable
from sandboxes.types import SandboxState
from sandboxes.wire.server.asgi import refuse

__all__ = ["CHECK_S", "MOST_LINES", "TerminalApp", "is_terminal"]

CHECK_S = 3.0
"""How often the person's right and the sandbox's state are looked at."""
MOST_LINES = 20
"""Of one person in one process."""
_KEEP_AWAKE_S = 60.0
_WARN_S = 60.0

log = logging.getLogger(__name__)

_PATH = re.compile(r"/sessions/(?P<pk>[0-9a-z_]+)/terminal")


def is_terminal(scope: Scope) -> bool:
    return scope["type"] == "websocket" and bool(_PATH.fullmatch(scope["path"]))


class Ending(Exception):
    """Why a line ends, as the page is told: `why` is exit, over, idle, paused, gone, denied, error, or broken,
    which may mend by itself."""

    def __init__(self, why: str, *, text: str = "", code: int | None = None) -> None:
        super().__init__(why)
        self.why, self.text, self.code = why, text, code


class TerminalApp:
    def __init__(self) -> None:
        self._lines: Counter[int] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = HTTPConnection(scope)
        found = _PATH.fullmatch(scope["path"])
        who = None
        if found is not None and is_same_origin(connection):
            who = await _visitor(connection, found["pk"])
        if who is None:
            await refuse(_refusal(_("There is no such session."), 404), scope, receive, send)
            return
        if self._lines[who.user_id] >= MOST_LINES:
            text = _("You have too many terminals open; close some of them.")
            await refuse(_refusal(text, 429), scope, receive, send)
            return
        self._lines[who.user_id] += 1
        try:
            with translation.override(language_of(connection)):
                socket = WebSocket(scope, receive, send)
                await socket.accept()
                await _Visit(socket, connection, who).run()
        finally:
            self._lines[who.user_id] -= 1


class _Visit:
    """One line, from being accepted to its end."""

    def __init__(self, socket: WebSocket, connection: HTTPConnection, who: Visitor) -> None:
        self._socket = socket
        self._connection = connection
        self._who = who
        self._line = Line(socket)
        self._idle_after_s = float(who.session.space.idle_timeout_s)
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        try:
            try:
                await self._line.tell("starting")
                async with AsyncExitStack() as stack:
                    async with Database():
                        shell = await stack.enter_async_context(self._shell())
                    await self._audited(shell)
            except Ending as ending:
                await self._close(ending)
            except Over:
                await self._close(Ending("over"))
            except Paused:
                await self._close(Ending("paused"))
            except SandboxError as error:
                await self._close(_ending_of(error))
        except LineClosed:
            return

    def _shell(self) -> AbstractAsyncContextManager[Shell]:
        query = self._connection.query_params
        cols, rows = (
            sane(int(value)) if (value := query.get(name, "")).isdecimal() else default
            for name, default in (("cols", 80), ("rows", 24))
        )
        find = shells.found if query.get("again") else shells.opened
        return find(self._who, cols=cols, rows=rows)

    async def _audited(self, shell: Shell) -> None:
        began, ended = self._loop.time(), "left"
        await self._note("open", shell="same" if shell.same else "new")
        await self._touch()
        try:
            await self._line.tell("open", same=shell.same)
            await self._serve(shell)
        except Ending as ending:
            ended = ending.why
            raise
        except SandboxError as error:
            ended = _ending_of(error).why
            raise
        finally:
            duration_s = round(self._loop.time() - began, 1)
            await asyncio.shield(self._note("close", duration_s=duration_s, ended=ended))

    async def _serve(self, shell: Shell) -> None:
        """Always raises: Ending, LineClosed or SandboxError, whichever comes first."""
        works = (
            self._line.show(shell.terminal),
            self._line.type(shell.terminal),
            self._line.listen(shell.terminal),
            self._watch(shell),
            self._keep_awake(shell),
        )
        tasks = [asyncio.ensure_future(work) for work in works]
        try:
            done, _pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()
        end = shell.terminal.exit
        raise Ending("exit", code=None if end is None else end.exit_code)

    async def _watch(self, shell: Shell) -> None:
        """The person's right, the sandbox's state, and how long nothing was typed."""
        warned_at = 0.0
        while True:
            await asyncio.sleep(CHECK_S)
            if await _visitor(self._connection, self._who.session.pk) is None:
                raise Ending("denied")
            await _look_after(shell)
            left_s = self._idle_after_s - self._line.idle_s
            if left_s <= 0:
                raise Ending("idle")
            if left_s <= min(_WARN_S, self._idle_after_s / 2) and warned_at != self._line.typed_at:
                warned_at = self._line.typed_at
                await self._line.tell("idle_soon", left_s=round(left_s))

    async def _keep_awake(self, shell: Shell) -> None:
        """While somebody types, the sandbox's own clock of idle time starts anew."""
        every_s = max(min(_KEEP_AWAKE_S, self._idle_after_s / 2), CHECK_S)
        while True:
            await asyncio.sleep(every_s)
            if self._line.idle_s > every_s:
                continue
            try:
                await shell.client.connect(
                    shell.sandbox.id,
                    traffic_token=shell.sandbox.traffic_token,
                    timeout_s=self._idle_after_s,
                )
            except SandboxError as error:
                _end_if_gone(error)
            await self._touch()

    async def _touch(self) -> None:
        session = self._who.session
        async with Database():
            await live.touch(space_id=session.space_id, session_id=session.session_id)

    async def _note(self, what: str, **details: object) -> None:
        session = self._who.session
        async with Database():
            await sync_to_async(record)(
                actor=self._who.actor,
                action=f"session.terminal_{what}",
                target=session.session_id,
                tenant_id=session.space.tenant_id,
                space_id=session.space_id,
                details=details,
            )

    async def _close(self, ending: Ending) -> None:
        await self._line.tell("end", why=ending.why, text=ending.text, code=ending.code)
        await self._socket.close()


async def _visitor(connection: HTTPConnection, pk: str) -> Visitor | None:
    async with Database():
        return await sync_to_async(visitor)(connection, pk)


async def _look_after(shell: Shell) -> None:
    """Raises Ending if the sandbox sleeps or is gone. What can't be found out is no reason to end."""
    try:
        info = await shell.client.get(shell.sandbox.id)
    except SandboxError as error:
        _end_if_gone(error)
        return
    if info.state is SandboxState.PAUSED:
        raise Ending("paused")
    if info.state is SandboxState.TERMINAL:
        raise Ending("gone")


def _end_if_gone(error: SandboxError) -> None:
    if error.gone:
        raise Ending("gone") from error
    log.info("the sandbox of a terminal can't be reached just now: %s", error)


def _ending_of(error: SandboxError) -> Ending:
    if error.gone:
        return Ending("gone")
    if isinstance(error, Conflict) and error.op == "terminal":
        return Ending("paused")
    broken = isinstance(error, TimedOut | Unavailable)
    return Ending("broken" if broken else "error", text=error.message)


def _refusal(text: str, status: int) -> PlainTextResponse:
    headers = {"Cache-Control": "no-store", "Content-Security-Policy": "default-src 'none'"}
    return PlainTextResponse(text, status, headers=headers)
