"""Running a skill's script or a command line in a session: with the answer as a page, or followed live."""

from __future__ import annotations

import codecs
import json
import shlex
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from django.http import HttpResponse, StreamingHttpResponse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from console.fleet.commands import streamed
from console.fleet.models import Session
from console.fleet.sessions import LiveSession
from console.fleet.workspace import WORKSPACE, command_argv, files_of, script_argv
from console.tenants.access import Action
from console.web.requests import ConsoleRequest, event_stream
from console.web.sessions.common import find, note, opened
from console.web.sessions.page import Ran, render
from sandboxes.errors import InvalidRequest, SandboxError
from sandboxes.types import ExecExit, ExecOutput, ExecRequest, Stream
from skills.models import SKILLS_ROOT

__all__ = ["run", "stream"]

OUTPUT_CAP_BYTES = 256 * 1024
RUN_TIMEOUT_S = 120.0
STREAM_TIMEOUT_S = 3600.0
"""Somebody looks on, and can stop it."""
_SHOWN_CHARACTERS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """What the form asks for: `script` is SKILL/PATH, empty for a command line."""

    script: str
    text: str

    @classmethod
    def of(cls, request: ConsoleRequest) -> _Wish:
        script = request.POST.get("script", "")
        text = request.POST.get("args" if script else "command", "").strip()
        return cls(script=script, text=text)


@require_POST
async def run(request: ConsoleRequest, pk: str) -> HttpResponse:
    """Run it to its end, as the session's user in /workspace."""
    row = await find(request, pk, Action.RUN)
    wish = _Wish.of(request)
    try:
        session = await opened(request, row)
        argv = await _argv(session, wish)
        result = await session.client.run(
            session.sandbox, _request(argv, RUN_TIMEOUT_S), max_output_bytes=OUTPUT_CAP_BYTES
        )
    except SandboxError as error:
        return await render(request, row, Ran(command=wish.text, problem=error.message), status=422)
    await _note(request, row, argv, result.exit_code)
    row = await find(request, pk, Action.RUN)
    return await render(request, row, Ran(command=_shown(wish, argv), result=result))


@require_POST
async def stream(request: ConsoleRequest, pk: str) -> StreamingHttpResponse:
    """Run it and send what it puts out as server-sent events: `start` {command}, `stdout` and `stderr` {text},
    then one `exit` {ok, text} or `problem` {text}. Leaving kills it with all that it started."""
    row = await find(request, pk, Action.RUN)
    return event_stream(_events(request, row, _Wish.of(request)))


async def _events(request: ConsoleRequest, row: Session, wish: _Wish) -> AsyncGenerator[str, None]:
    argv: tuple[str, ...] = ()
    end: ExecExit | None = None
    decoders = {each: codecs.getincrementaldecoder("utf-8")("replace") for each in Stream}
    try:
        session = await opened(request, row)
        argv = await _argv(session, wish)
        yield _event("start", command=_shown(wish, argv))
        async with aclosing(streamed(session, _request(argv, STREAM_TIMEOUT_S))) as events:
            async for event in events:
                if event is None:
                    yield ": still here\n\n"
                elif isinstance(event, ExecOutput):
                    yield _event(event.stream, text=decoders[event.stream].decode(event.data))
                elif isinstance(event, ExecExit):
                    end = event
                    yield _event("exit", ok=event.exit_code == 0, text=_how_it_ended(event))
    except SandboxError as error:
        yield _event("problem", text=error.message)
    finally:
        if argv:
            await _note(request, row, argv, end.exit_code if end else None)


def _shown(wish: _Wish, argv: tuple[str, ...]) -> str:
    """What a person would have typed."""
    return shlex.join(argv) if wish.script else wish.text


def _how_it_ended(end: ExecExit) -> str:
    if end.killed:
        return _("stopped at the time limit")
    return _("exit code %(code)d after %(took).1f s") % {
        "code": end.exit_code,
        "took": end.duration_s,
    }


def _event(name: str, **data: object) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


def _request(argv: tuple[str, ...], timeout_s: float) -> ExecRequest:
    return ExecRequest(argv=command_argv(argv), cwd=WORKSPACE, timeout_s=timeout_s)


async def _note(
    request: ConsoleRequest, row: Session, argv: tuple[str, ...], exit_code: int | None
) -> None:
    shown = shlex.join(argv)[:_SHOWN_CHARACTERS]
    await note(request, row, "exec", argv=shown, exit_code=exit_code)


async def _argv(session: LiveSession, wish: _Wish) -> tuple[str, ...]:
    if not wish.script:
        if not wish.text:
            raise InvalidRequest("Choose a script, or type a command.")
        return ExecRequest.shell_argv(wish.text)
    skill, _slash, path = wish.script.partition("/")
    try:
        args = tuple(shlex.split(wish.text))
    except ValueError as error:
        raise InvalidRequest(f"The arguments can't be split: {error}. Close the quotes.") from None
    return await script_argv(
        files=files_of(session.client),
        sandbox=session.sandbox,
        skill_path=f"{SKILLS_ROOT}/{skill}",
        script=path,
        args=args,
    )
