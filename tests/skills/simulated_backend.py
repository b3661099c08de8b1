"""A backend kind for tests: `sandboxes.testing.simulated`, with as much of a shell as a build needs.

The account lies in a file, so that it outlives a worker that is killed. Every call of the contract is a
point at which `POINTS` may kill the process.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandboxes.client import SandboxClient
from sandboxes.registry import setting
from sandboxes.testing.simulated import SimulatedProvider, SimulatedSandbox
from sandboxes.types import ExecRequest

CommandResult = tuple[int, bytes, bytes]

PROVIDER = "simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    path: str = setting(label="File", identity=True)
    account: str = setting(label="Account", identity=True, default="")
    api_key: str = setting(label="Key", secret=True, default="")


@dataclass
class Points:
    """Numbers every point of a build; at number `kill_at`, or at the first of that name, the process ends as
    by kill -9."""

    kill_at: int = 0
    kill_named: str = ""
    passed: int = 0

    def pass_by(self, name: str) -> None:
        self.passed += 1
        if self.passed == self.kill_at or name == self.kill_named:
            os.kill(os.getpid(), signal.SIGKILL)


POINTS = Points()
ACCOUNTS: dict[str, FileProvider] = {}


class FileProvider(SimulatedProvider):
    """An account whose state is in a file between two calls."""

    def __init__(self, path: Path) -> None:
        super().__init__(templates=["base"])
        self.path = path
        self.results: dict[str, CommandResult] = {}
        """By the beginning of a command line: what it answers instead of success."""
        self.commands.update(dict.fromkeys(_KNOWN, self._command))
        self.ran: list[str] = []
        self._load()

    @asynccontextmanager
    async def call(self, op: str, sandbox_id: str = "") -> AsyncIterator[None]:
        POINTS.pass_by(f"before {op}")
        self._load()
        async with super().call(op, sandbox_id):
            yield
            self._save()
            POINTS.pass_by(f"after {op}")

    def _load(self) -> None:
        if self.path.exists():
            state = pickle.loads(self.path.read_bytes())  # noqa: S301 (our own file)
            self.templates, self.snapshots, self.sandboxes, self.created, number = state
            self._ids = iter(range(number, 1_000_000))

    def _save(self) -> None:
        number = next(self._ids)
        state = (self.templates, self.snapshots, self.sandboxes, self.created, number)
        new = self.path.with_suffix(".new")
        new.write_bytes(pickle.dumps(state))
        new.replace(self.path)
        self._ids = iter(range(number, 1_000_000))

    async def _command(
        self, sandbox: SimulatedSandbox, request: ExecRequest, stdin: bytes
    ) -> CommandResult:
        line = " ".join(request.argv)
        self.ran.append(line)
        for beginning, result in self.results.items():
            if beginning in line:
                return result
        return 0, _answer(sandbox, request), b""


_KNOWN = ["/bin/sh", "/bin/bash", "rm", "du", "dpkg-query", "apt-get", "uv", "npm"]


def _answer(sandbox: SimulatedSandbox, request: ExecRequest) -> bytes:
    argv = request.argv
    if argv[0] == "dpkg-query":
        return b"bash\t5.2\tinstalled\ngone\t1.0\tconfig-files\n"
    if argv[:2] == ("du", "-sxB1"):
        return b"1048576\t/\n"
    if argv[0] == "du":
        return b"".join(b"4096\t%s\n" % path.encode() for path in argv[3:])
    if "look" in argv:
        wanted = json.loads(sandbox.files[argv[-1]].data)
        return json.dumps({"environment": {}, "checks": _checks(wanted)}).encode()
    return b""


def _checks(wanted: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "code": "files",
            "subject": str(len(wanted["files"])),
            "ok": True,
            "output": "",
            "data": {},
        }
    ]


def account(path: str) -> FileProvider:
    if path not in ACCOUNTS:
        ACCOUNTS[path] = FileProvider(Path(path))
    return ACCOUNTS[path]


async def open_client(settings: Settings) -> SandboxClient:
    return account(settings.path).client()
