"""Commands in a container of a remote engine, through Docker's exec.

Docker's exec has no kill, forgets whom it started, and can't end a command's input over TLS; the
scripts of `remote_scripts.py` make up for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal as signals
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from sandboxes.errors import Conflict, Internal, InvalidRequest, NotFound, SandboxError, Terminal
from sandboxes.sandboxd.engines.base import ExitStatus, ProcessSpec, RunningProcess, WindowSize
from sandboxes.sandboxd.engines.docker.api import Api, ExecStream
from sandboxes.sandboxd.engines.docker.remote_scripts import (
    INIT,
    KILL_TREE,
    SIGNAL,
    START,
    START_WITH_INPUT,
)
from sandboxes.sandboxd.engines.runc.waiting import outcome

__all__ = ["Finished", "RemoteProcess", "announced", "run_inside", "start"]

_FRAME_BYTES = 32 * 1024
_MAX_HEADER_BYTES = 16 * 1024
_POLL_S = 0.25
_KILLED = 128 + signals.SIGKILL
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class RemoteProcess(RunningProcess):
    def __init__(
        self,
        api: Api,
        container: str,
        stream: ExecStream,
        *,
        pid: int,
        reaper: int,
        terminal: bool,
        stdin: bool,
        early: list[tuple[str, bytes]],
    ) -> None:
        self.pid = pid
        self._api = api
        self._container = container
        self._stream = stream
        self._reaper = reaper
        self._terminal = terminal
        self._stdin_open = stdin or terminal
        self._early = early
        self._read = False
        self._exit = asyncio.ensure_future(self._await_exit())
        self._writing = asyncio.Lock()

    async def output(self) -> AsyncIterator[tuple[str, bytes]]:
        self._read = True
        try:
            for chunk in self._early:
                yield chunk
            while (chunk_or_end := await self._stream.read()) is not None:
                yield self._named(*chunk_or_end)
        finally:
            await self._stream.aclose()

    def _named(self, number: int, data: bytes) -> tuple[str, bytes]:
        if self._terminal:
            return "terminal", data
        return ("stderr" if number == 2 else "stdout"), data

    async def write_stdin(self, data: bytes) -> None:
        async with self._writing:
            if not self._stdin_open or self._exit.done():
                raise Conflict("The process's standard input is closed; start it with one.")
            for start in range(0, len(data), _FRAME_BYTES):
                piece = data[start : start + _FRAME_BYTES]
                head = b"" if self._terminal else b"%d\n" % len(piece)
                await self._stream.write(head + piece)

    async def close_stdin(self) -> None:
        if self._terminal:
            raise Conflict("A terminal's input can't be closed; send Ctrl-D (the byte 4) instead.")
        async with self._writing:
            if self._stdin_open and not self._exit.done():
                await self._stream.write(b"0\n")
            self._stdin_open = False

    async def resize(self, size: WindowSize) -> None:
        if not self._terminal:
            raise InvalidRequest("This process has no terminal to resize; start it with one.")
        if self._exit.done():
            raise NotFound("The process has exited.")
        with contextlib.suppress(SandboxError):
            await self._stream.resize(size)

    async def signal(self, signal: int) -> None:
        if self._exit.done():
            raise NotFound("The process has exited.")
        argv = ("sh", "-c", SIGNAL, "sh", str(int(signal)), str(self.pid))
        await run_inside(self._api, self._container, argv)

    async def kill_tree(self) -> None:
        """While the command runs. What it left behind after its exit belongs to the container."""
        if not self._exit.done():
            argv = ("sh", "-c", KILL_TREE, "sh", str(self._reaper))
            with contextlib.suppress(NotFound, Conflict, Terminal):
                await run_inside(self._api, self._container, argv)
            await asyncio.wait([self._exit])
        if not self._read:
            await self._stream.aclose()

    async def wait(self) -> ExitStatus:
        return await asyncio.shield(self._exit)

    async def _await_exit(self) -> ExitStatus:
        while (code := await self._stream.exit_code()) is None:
            if self._stream.ended.is_set():
                await asyncio.sleep(0.01)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await self._stream.ended.wait()
        return ExitStatus(signal=signals.SIGKILL) if code == _KILLED else ExitStatus(code=code)


@dataclass(frozen=True, slots=True)
class Finished:
    code: int
    stdout: bytes
    stderr: bytes


async def start(
    api: Api, container: str, process: ProcessSpec, env: Mapping[str, str]
) -> RemoteProcess:
    """All or nothing, also when cancelled."""
    starting = asyncio.ensure_future(_start(api, container, process, env))
    try:
        return await outcome(starting)
    except asyncio.CancelledError:
        if starting.done() and not starting.cancelled() and not starting.exception():
            await starting.result().kill_tree()
        raise


async def _start(
    api: Api, container: str, process: ProcessSpec, env: Mapping[str, str]
) -> RemoteProcess:
    if not process.argv or not process.argv[0]:
        raise InvalidRequest("The command is empty; name a program.")
    word = secrets.token_hex(16)
    framed = process.stdin and process.terminal is None
    stream = await api.exec(
        container,
        (
            *INIT,
            *("sh", "-c", START_WITH_INPUT if framed else START, "sh"),
            *(word, process.cwd or ""),
            *process.argv,
        ),
        user=process.user,
        env={"PATH": _PATH, "LANG": "C.UTF-8", **env},
        stdin=framed or process.terminal is not None,
        terminal=process.terminal,
    )
    try:
        header, early = await _header(stream, word, terminal=process.terminal is not None)
        if header == ["cwd"]:
            raise InvalidRequest(
                f"The working directory “{process.cwd}” can't be entered by {process.user}; create "
                "it first or choose another."
            )
        pid, reaper = (int(number) for number in header)
    except BaseException:
        await stream.aclose()
        raise
    return RemoteProcess(
        api,
        container,
        stream,
        pid=pid,
        reaper=reaper,
        terminal=process.terminal is not None,
        stdin=framed,
        early=early,
    )


async def _header(
    stream: ExecStream, word: str, *, terminal: bool
) -> tuple[list[str], list[tuple[str, bytes]]]:
    """The first line that the script wrote, and what came with it. What the command itself writes
    to stdout may overtake it."""
    text, early = b"", list[tuple[str, bytes]]()
    while (chunk := await stream.read()) is not None and len(text) < _MAX_HEADER_BYTES:
        if chunk[0] == 1 and not terminal:
            early.append(("stdout", chunk[1]))
            continue
        text += chunk[1]
        line, newline, rest = text.partition(b"\n")
        if newline:
            words = line.decode(errors="replace").split()
            if words[:1] == [word]:
                if rest:
                    early.append(("terminal" if terminal else "stderr", rest))
                return words[1:], early
            break
    said = text or b"".join(data for _, data in early)
    raise _refusal(said.decode(errors="replace").strip())


async def announced(stream: ExecStream, line: bytes) -> tuple[bool, bytes, bytes]:
    """Waits until a script of ours says `line` on stderr: whether it did, what it wrote to stdout
    until then, and what else to stderr."""
    outputs = {1: b"", 2: b""}
    while (chunk := await stream.read()) is not None:
        outputs[chunk[0]] += chunk[1]
        if line in outputs[2]:
            return True, outputs[1], b""
    return False, outputs[1], outputs[2]


def _refusal(text: str) -> SandboxError:
    if "unable to find user" in text:
        return InvalidRequest(
            "There is no such user in the sandbox; use one of its own accounts, such as root.",
            detail=text,
        )
    return Internal("Docker could not start the command; see sandboxd's log.", detail=text)


async def run_inside(
    api: Api, container: str, argv: Sequence[str], *, user: str = "0:0"
) -> Finished:
    """One of our own scripts, as root, to its end."""
    stream = await api.exec(container, argv, user=user, env={"PATH": _PATH, "LC_ALL": "C.UTF-8"})
    outputs: dict[int, bytes] = {1: b"", 2: b""}
    try:
        while (chunk := await stream.read()) is not None:
            outputs[chunk[0]] += chunk[1]
        while (code := await stream.exit_code()) is None:  # noqa: ASYNC110 - it has no event for us
            await asyncio.sleep(0.01)
    finally:
        await stream.aclose()
    return Finished(code, outputs[1], outputs[2])
