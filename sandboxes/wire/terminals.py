"""Terminals in a sandbox, over envd's `process.Process`. A terminal's name is its process's tag."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from sandboxes.client import Terminal, TerminalAccess
from sandboxes.types import DEFAULT_USER, ExecExit, Sandbox
from sandboxes.wire.envd import Envd
from sandboxes.wire.running import Running

__all__ = ["EnvdTerminals"]

_OP = "terminal"
_ENV = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}


class EnvdTerminals(TerminalAccess):
    def __init__(self, envd: Envd) -> None:
        self._envd = envd

    @asynccontextmanager
    async def open(
        self,
        sandbox: Sandbox,
        *,
        name: str | None = None,
        cols: int = 80,
        rows: int = 24,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str = DEFAULT_USER,
    ) -> AsyncIterator[Terminal]:
        envs = {**_ENV, **(env or {})}
        process: dict[str, Any] = {"cmd": "/bin/bash", "args": ["-i", "-l"], "envs": envs}
        if cwd is not None:
            process["cwd"] = cwd
        message = {"process": process, "pty": {"size": {"cols": cols, "rows": rows}}}
        running = Running(self._envd, _OP, sandbox, user, None, tag=name)
        async with running.start(message, lasting=name is not None):
            yield _Terminal(running)

    @asynccontextmanager
    async def attach(
        self, sandbox: Sandbox, name: str, *, user: str = DEFAULT_USER
    ) -> AsyncIterator[Terminal]:
        running = Running(self._envd, _OP, sandbox, user, None, tag=name)
        async with running.attach():
            yield _Terminal(running)

    async def names(self, sandbox: Sandbox) -> frozenset[str]:
        reply = await self._envd.call(_OP, sandbox, "process.Process/List", {})
        return frozenset(
            str(process["tag"]) for process in reply.get("processes") or () if process.get("tag")
        )


class _Terminal(Terminal):
    def __init__(self, running: Running) -> None:
        self._running = running
        self._exit: ExecExit | None = None

    @property
    def exit(self) -> ExecExit | None:
        return self._exit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (event := await self._running.next()) is not None:
            if (end := event.get("end")) is not None:
                self._exit = await self._running.exit(end)
                return
            if data := event.get("data", {}).get("pty"):
                yield base64.b64decode(data)

    async def write(self, data: bytes) -> None:
        piece = base64.b64encode(data).decode()
        await self._running.ask("SendInput", {"input": {"pty": piece}})

    async def resize(self, *, cols: int, rows: int) -> None:
        await self._running.ask("Update", {"pty": {"size": {"cols": cols, "rows": rows}}})

    async def kill(self) -> None:
        await self._running.kill()
