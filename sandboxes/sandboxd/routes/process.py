"""`process.Process`: start, attach to, feed and signal processes.

A client that disconnects leaves its process running; Connect-Timeout-Ms on Start kills it at the
deadline. SIGNAL_SIGKILL reaches the process's whole tree, daemonised children included.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import math
import signal
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, cast

from sandboxes.errors import SandboxError
from sandboxes.sandboxd.engines.base import Engine, ExitStatus, ProcessSpec, WindowSize
from sandboxes.sandboxd.processes import (
    Ended,
    Event,
    Gone,
    ManagedProcess,
    Output,
    Overran,
    Subscription,
)
from sandboxes.sandboxd.routes.paths import resolve_path
from sandboxes.sandboxd.routes.rpc import Call, ClientStream, ServerStream, StreamBroken, Unary
from sandboxes.wire.connect import Code, ConnectError
from sandboxes.wire.messages import ProcessConfig, ProcessEnd, ProcessInfo, ProcessSelector
from sandboxes.wire.server.problems import connect_error

__all__ = ["ProcessService"]

_SIGNALS = {"SIGNAL_SIGTERM": signal.SIGTERM, "SIGNAL_SIGKILL": signal.SIGKILL, 15: 15, 9: 9}
_FIELDS = {"stdout": "stdout", "stderr": "stderr", "terminal": "pty"}
_MAX_SIZE = 0xFFFF


class ProcessService:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.methods: dict[str, Unary | ServerStream | ClientStream] = {
            "/process.Process/List": Unary(self.list),
            "/process.Process/Start": ServerStream(self.start),
            "/process.Process/Connect": ServerStream(self.connect),
            "/process.Process/Update": Unary(self.update),
            "/process.Process/SendInput": Unary(self.send_input),
            "/process.Process/StreamInput": ClientStream(self.stream_input),
            "/process.Process/SendSignal": Unary(self.send_signal),
            "/process.Process/CloseStdin": Unary(self.close_stdin),
        }

    async def list(self, call: Call, message: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"processes": [_info(process) for process in call.live.processes.live()]}

    async def start(
        self, call: Call, message: Mapping[str, Any]
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        starting = asyncio.ensure_future(self._start(call, message))
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The client left meanwhile; its process runs on all the same.
            starting.add_done_callback(_begin)
            raise
        with process.attach() as subscription:
            process.begin()
            async for reply in _follow(process, subscription, call.keepalive_s):
                yield reply

    async def _start(self, call: Call, message: Mapping[str, Any]) -> ManagedProcess:
        config = _config(message.get("process"))
        cwd = config.get("cwd")
        if cwd:
            files = self._engine.files(call.live.id)
            cwd = await resolve_path(files, cwd, call.user)
        terminal = _terminal(message.get("pty"))
        running = await self._engine.spawn(
            call.live.id,
            ProcessSpec(
                argv=[config["cmd"], *config.get("args", [])],
                user=call.user,
                cwd=cwd or None,
                env={**call.live.record.env, **config.get("envs", {})},
                stdin=message.get("stdin", True) is not False,
                terminal=terminal,
            ),
        )
        tag = message.get("tag")
        return call.live.processes.add(
            running,
            config=config,
            terminal=terminal is not None,
            tag=str(tag) if tag else None,
            timeout_s=call.timeout_s,
        )

    async def connect(
        self, call: Call, message: Mapping[str, Any]
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        process = call.live.processes.find(_selector(message), ended=True)
        with process.attach() as subscription:
            async for reply in _follow(process, subscription, call.keepalive_s, call.timeout_s):
                yield reply

    async def update(self, call: Call, message: Mapping[str, Any]) -> Mapping[str, Any]:
        process = call.live.processes.find(_selector(message))
        if (size := _terminal(message.get("pty"))) is not None:
            await process.running.resize(size)
        return {}

    async def send_input(self, call: Call, message: Mapping[str, Any]) -> Mapping[str, Any]:
        process = call.live.processes.find(_selector(message))
        await _write(process, message.get("input"))
        return {}

    async def stream_input(
        self, call: Call, messages: AsyncIterator[Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        process: ManagedProcess | None = None
        async for message in messages:
            if start := message.get("start"):
                process = call.live.processes.find(_selector(start))
            elif data := message.get("data"):
                if process is None:
                    raise ConnectError(Code.INVALID_ARGUMENT, "the first message must be start")
                await _write(process, data.get("input"))
        return {}

    async def send_signal(self, call: Call, message: Mapping[str, Any]) -> Mapping[str, Any]:
        process = call.live.processes.find(_selector(message))
        number = _SIGNALS.get(cast(Any, message.get("signal")))
        if number is None:
            raise ConnectError(
                Code.UNIMPLEMENTED, "only SIGNAL_SIGTERM and SIGNAL_SIGKILL can be sent"
            )
        await process.signal(number)
        return {}

    async def close_stdin(self, call: Call, message: Mapping[str, Any]) -> Mapping[str, Any]:
        process = call.live.processes.find(_selector(message))
        try:
            await process.running.close_stdin()
        except SandboxError as error:
            raise connect_error(error, conflict=Code.FAILED_PRECONDITION) from None
        return {}


async def _follow(
    process: ManagedProcess,
    subscription: Subscription,
    keepalive_s: float,
    timeout_s: float | None = None,
) -> AsyncIterator[Mapping[str, Any]]:
    """`timeout_s` ends this stream, not the process."""
    deadline = time.monotonic() + timeout_s if timeout_s else math.inf
    yield {"event": {"start": {"pid": process.pid}}}
    while True:
        remaining = deadline - time.monotonic()
        try:
            event = await subscription.next(max(min(keepalive_s, remaining), 0.0))
        except TimeoutError:
            if time.monotonic() >= deadline:
                raise ConnectError(Code.DEADLINE_EXCEEDED, "the deadline passed") from None
            yield {"event": {"keepalive": {}}}
            continue
        yield {"event": _event(event)}
        if isinstance(event, Ended):
            return


def _event(event: Event) -> Mapping[str, Any]:
    match event:
        case Output(stream, data):
            return {"data": {_FIELDS[stream]: base64.b64encode(data).decode()}}
        case Ended(status):
            return {"end": _end(status)}
        case Overran():
            raise ConnectError(
                Code.DEADLINE_EXCEEDED, "the process ran past its deadline and was killed"
            )
        case Gone():
            raise StreamBroken


def _end(status: ExitStatus) -> ProcessEnd:
    if status.signal is not None:
        name = (signal.strsignal(status.signal) or f"signal {status.signal}").lower()
        text = f"signal: {name}"
        return {"exitCode": -1, "exited": False, "status": text, "error": text}
    text = f"exit status {status.code}"
    end: ProcessEnd = {"exited": True, "status": text}
    if status.code:
        end["exitCode"] = status.code
        end["error"] = text
    return end


def _begin(starting: asyncio.Task[ManagedProcess]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().begin()


def _config(raw: Any) -> ProcessConfig:
    given = raw if isinstance(raw, dict) else {}
    cmd, args, envs, cwd = (given.get(name) for name in ("cmd", "args", "envs", "cwd"))
    if not isinstance(cmd, str) or not cmd:
        raise ConnectError(Code.INVALID_ARGUMENT, "process.cmd is required")
    args, envs = args or [], envs or {}
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
        raise ConnectError(Code.INVALID_ARGUMENT, "process.args must be a list of strings")
    if not isinstance(envs, dict) or not all(isinstance(value, str) for value in envs.values()):
        raise ConnectError(Code.INVALID_ARGUMENT, "process.envs must be an object of strings")
    if cwd is not None and not isinstance(cwd, str):
        raise ConnectError(Code.INVALID_ARGUMENT, "process.cwd must be a string")
    if any("\0" in text for text in (cmd, *args, *envs, *envs.values(), cwd or "")):
        raise ConnectError(Code.INVALID_ARGUMENT, "a process takes no NUL character")
    config: ProcessConfig = {"cmd": cmd, "args": args, "envs": envs}
    if cwd:
        config["cwd"] = cwd
    return config


def _terminal(raw: Any) -> WindowSize | None:
    if not isinstance(raw, dict):
        return None
    size = raw.get("size") or {}
    cols, rows = size.get("cols") or 80, size.get("rows") or 24
    for value in (cols, rows):
        if not isinstance(value, int) or not 0 < value <= _MAX_SIZE:
            raise ConnectError(Code.INVALID_ARGUMENT, f"pty.size: from 1 to {_MAX_SIZE}")
    return WindowSize(cols=cols, rows=rows)


def _selector(message: Mapping[str, Any]) -> ProcessSelector:
    raw = message.get("process")
    given = raw if isinstance(raw, dict) else {}
    pid, tag = given.get("pid"), given.get("tag")
    if isinstance(pid, int) and not isinstance(pid, bool):
        return {"pid": pid}
    if isinstance(tag, str) and tag:
        return {"tag": tag}
    raise ConnectError(Code.INVALID_ARGUMENT, "process must name a pid or a tag")


def _info(process: ManagedProcess) -> ProcessInfo:
    info: ProcessInfo = {"pid": process.pid, "config": process.config}
    if process.tag:
        info["tag"] = process.tag
    return info


async def _write(process: ManagedProcess, raw: Any) -> None:
    given = raw if isinstance(raw, dict) else {}
    field = "pty" if process.terminal else "stdin"
    if field not in given:
        wanted = "a terminal: send pty" if process.terminal else "no terminal: send stdin"
        raise ConnectError(Code.INTERNAL, f"the process has {wanted} input")
    try:
        data = base64.b64decode(given[field], validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise ConnectError(Code.INVALID_ARGUMENT, f"input.{field} is not base64") from None
    try:
        await process.running.write_stdin(data)
    except SandboxError as error:
        raise connect_error(error, conflict=Code.INTERNAL) from None
