"""Commands: a JSON answer when they end, or server-sent events while they run."""

from __future__ import annotations

import base64
import codecs
import shlex
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase

from console.api.errors import as_api_error
from console.api.events import KEEP_ALIVE, event
from console.api.limits import Place
from console.api.runtime.base import SessionView
from console.api.runtime.serializers import (
    COMMAND_EVENTS,
    CommandResultSerializer,
    CommandSerializer,
    RunScriptSerializer,
)
from console.api.schema import EVENTS, operation, parameter
from console.api.views import answer
from console.fleet import sessions as live
from console.fleet.commands import streamed
from console.fleet.workspace import command_argv, files_of, script_argv
from console.tenants.access import Action
from sandboxes.types import (
    DEFAULT_USER,
    ExecEvent,
    ExecExit,
    ExecOutput,
    ExecRequest,
    ExecResult,
    ExecStarted,
    Stream,
)
from skills.models import SKILLS_ROOT

TAG = "sessions"
_SHOWN_CHARACTERS = 500

STREAMED = (
    "With `Accept: text/event-stream` the answer is a stream of events, each with its data as JSON: `start`, "
    "then `stdout` and `stderr`, then exactly one `exit` or `error`. Leaving early kills the command with all "
    "that it started."
)
ACCEPT = parameter("Accept", where="header", description="application/json or text/event-stream.")


class CommandView(SessionView):
    """Runs one command in the session's sandbox, which is made or woken first."""

    async def run(self, request: HttpRequest, wanted: dict[str, Any]) -> HttpResponseBase:
        self.user(wanted["user"])
        place = await self.admitted(wanted["timeout_s"])
        try:
            opened = await self.resolve()
            argv = await self.argv(opened, wanted)
            self.shown = shlex.join(argv)[:_SHOWN_CHARACTERS]
            command = ExecRequest(
                # Root would follow the links that the session's programs may have put there.
                argv=command_argv(argv) if wanted["user"] == DEFAULT_USER else argv,
                stdin=wanted["stdin"],
                env=wanted["env"],
                cwd=wanted["cwd"],
                user=wanted["user"],
                timeout_s=wanted["timeout_s"],
            )
            if EVENTS in request.headers.get("Accept", ""):
                response = _Stream(self._events(opened, command, place), content_type=EVENTS)
                response.place = place
                return response
            cap = wanted["max_output_bytes"]
            result = await self._finished(opened, command, cap)
        except BaseException:
            place.release()
            raise
        place.release()
        return answer(result_json(opened, result))

    async def argv(self, opened: live.LiveSession, wanted: dict[str, Any]) -> tuple[str, ...]:
        raise NotImplementedError

    async def _finished(
        self, opened: live.LiveSession, command: ExecRequest, cap: int
    ) -> ExecResult:
        result: ExecResult | None = None
        try:
            result = await opened.client.run(opened.sandbox, command, max_output_bytes=cap)
            return result
        finally:
            await self._note_command(command, result)

    async def _events(
        self, opened: live.LiveSession, command: ExecRequest, place: Place
    ) -> AsyncGenerator[bytes, None]:
        encode, end = _Encoder(opened), None
        try:
            async with aclosing(streamed(opened, command)) as events:
                async for happened in events:
                    if isinstance(happened, ExecExit):
                        end = happened
                    yield KEEP_ALIVE if happened is None else encode(happened)
        except Exception as error:
            yield event("error", as_api_error(error, self.request).body())
        finally:
            place.release()
            await self._note_command(command, end)

    async def _note_command(self, command: ExecRequest, end: ExecResult | ExecExit | None) -> None:
        await self.note(
            "session.exec",
            used=True,
            argv=self.shown,
            user=command.user,
            exit_code=end.exit_code if end else None,
            killed=end.killed if end else True,
        )


class _Stream(StreamingHttpResponse):
    """Gives the place back even if nobody ever read from it."""

    place: Place

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.headers["X-Accel-Buffering"] = "no"

    def close(self) -> None:
        super().close()
        self.place.release()


class Exec(CommandView):
    needs = {"POST": Action.RUN}

    @operation(
        "sessions_exec",
        "Run a command in the session's sandbox",
        tag=TAG,
        request=CommandSerializer,
        response=CommandResultSerializer,
        events=COMMAND_EVENTS,
        errors=(409, 410, 502, 504),
        parameters=[ACCEPT],
        limited=True,
        description=f"A command that overruns is a result, not an error. {STREAMED}",
    )
    async def post(self, request: HttpRequest) -> HttpResponseBase:
        return await self.run(request, self.valid(CommandSerializer))

    async def argv(self, opened: live.LiveSession, wanted: dict[str, Any]) -> tuple[str, ...]:
        line = wanted.get("command")
        return tuple(wanted["argv"]) if line is None else ExecRequest.shell_argv(line)


class RunScript(CommandView):
    needs = {"POST": Action.RUN}

    @operation(
        "sessions_run_skill",
        "Run a script of a skill that the session's release carries",
        tag=TAG,
        request=RunScriptSerializer,
        response=CommandResultSerializer,
        events=COMMAND_EVENTS,
        errors=(409, 410, 502, 504),
        parameters=[ACCEPT],
        limited=True,
        description=(
            "The interpreter is chosen by the script's extension: the skill's own Python, node, bash, "
            f"or the file itself. It runs as `user` in /workspace. {STREAMED}"
        ),
    )
    async def post(self, request: HttpRequest, name: str) -> HttpResponseBase:
        self.skill_path = f"{SKILLS_ROOT}/{_segment(name)}"
        return await self.run(request, self.valid(RunScriptSerializer))

    async def argv(self, opened: live.LiveSession, wanted: dict[str, Any]) -> tuple[str, ...]:
        return await script_argv(
            files=files_of(opened.client),
            sandbox=opened.sandbox,
            skill_path=self.skill_path,
            script=wanted["script"],
            args=tuple(wanted["args"]),
        )


def _segment(name: str) -> str:
    """A skill's name as one path segment; a name that is none finds nothing."""
    return name if name not in (".", "..") and "/" not in name else "-"


def result_json(opened: live.LiveSession, result: ExecResult) -> dict[str, Any]:
    return {
        "sandbox_id": opened.sandbox.id,
        "outcome": opened.resolved.outcome.value,
        **_both("stdout", result.stdout),
        **_both("stderr", result.stderr),
        "exit_code": result.exit_code,
        "killed": result.killed,
        "duration_s": round(result.duration_s, 6),
        "truncated": result.truncated,
    }


def _both(name: str, data: bytes) -> dict[str, str | None]:
    try:
        return {name: data.decode(), f"{name}_base64": None}
    except UnicodeDecodeError:
        text = data.decode(errors="replace")
        return {name: text, f"{name}_base64": base64.b64encode(data).decode()}


class _Encoder:
    """Events as server-sent ones. A character that two chunks share is in the text of the second."""

    def __init__(self, opened: live.LiveSession) -> None:
        self._opened = opened
        utf8 = codecs.getincrementaldecoder("utf-8")
        self._decoders: dict[Stream, codecs.IncrementalDecoder | None] = {
            stream: utf8() for stream in Stream
        }

    def __call__(self, happened: ExecEvent) -> bytes:
        if isinstance(happened, ExecStarted):
            started = {
                "pid": happened.pid,
                "sandbox_id": self._opened.sandbox.id,
                "outcome": self._opened.resolved.outcome.value,
            }
            return event("start", started)
        if isinstance(happened, ExecOutput):
            data = base64.b64encode(happened.data).decode()
            return event(happened.stream.value, {"data": data, "text": self._text(happened)})
        ended = {
            "exit_code": happened.exit_code,
            "killed": happened.killed,
            "duration_s": round(happened.duration_s, 6),
        }
        return event("exit", ended)

    def _text(self, output: ExecOutput) -> str | None:
        decoder = self._decoders[output.stream]
        if decoder is None:
            return None
        try:
            return decoder.decode(output.data)
        except UnicodeDecodeError:
            self._decoders[output.stream] = None
            return None
