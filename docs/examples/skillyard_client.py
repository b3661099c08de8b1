"""A client of Skillyard's REST API in one file. Needs httpx; copy it into your project and change it.

with Skillyard("https://skillyard.example.com", key="sky_…") as api:
    session = api.session(space="spc_…", id="conversation-42")
    with session.turn():
        session.stage("sales.csv", b"month,total\\n1,100\\n")
        result = session.run_skill("table-report", "scripts/report.py", ["sales.csv"])
        for entry in session.outputs():
            data = session.read(entry["path"])
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Self
from urllib.parse import quote

import httpx

__all__ = ["CommandResult", "Event", "Session", "Skillyard", "SkillyardError"]


class SkillyardError(Exception):
    """A refusal. `kind` is stable; `gone` says that the sandbox is no more, so that what was in it is
    lost and the next call makes a new one. Nothing else ever means that."""

    def __init__(self, status: int, error: Mapping[str, Any], retry_after_s: float | None) -> None:
        super().__init__(str(error.get("message", f"HTTP {status}")))
        self.status = status
        self.code = int(error.get("code", 0))
        self.kind = str(error.get("kind", "internal"))
        self.details = error.get("details")
        self.retry_after_s = retry_after_s

    @property
    def gone(self) -> bool:
        return self.kind in ("not_found", "terminal")

    @property
    def retryable(self) -> bool:
        return self.status in (429, 503)


@dataclass(frozen=True)
class CommandResult:
    """`killed` says that it overran its timeout. Output past the cap was dropped if `truncated`."""

    stdout: bytes
    stderr: bytes
    exit_code: int
    killed: bool
    truncated: bool
    duration_s: float
    sandbox_id: str

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.killed

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CommandResult:
        return cls(
            stdout=_output(data, "stdout"),
            stderr=_output(data, "stderr"),
            exit_code=data["exit_code"],
            killed=data["killed"],
            truncated=data["truncated"],
            duration_s=data["duration_s"],
            sandbox_id=data["sandbox_id"],
        )


@dataclass(frozen=True)
class Event:
    """`name` is start, stdout, stderr or exit; `data` its fields. Output has `bytes`."""

    name: str
    data: dict[str, Any]

    @property
    def bytes(self) -> bytes:
        return base64.b64decode(self.data.get("data", ""))


class Skillyard:
    """`retries` is how often a call is repeated that was refused with 429 or 503."""

    def __init__(self, url: str, *, key: str, timeout_s: float = 300.0, retries: int = 5) -> None:
        self.http = httpx.Client(
            base_url=f"{url.rstrip('/')}/api/v1",
            headers={"X-API-Key": key},
            timeout=httpx.Timeout(timeout_s, connect=10.0),
        )
        self.retries = retries

    def close(self) -> None:
        self.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def session(self, *, space: str, id: str) -> Session:
        """The sandbox of one conversation, by the platform's own id. Makes nothing yet."""
        return Session(self, f"/spaces/{space}/sessions/{quote(id, safe='')}")

    def me(self) -> dict[str, Any]:
        return dict(self.call("GET", "/me"))

    def skills(self, space: str) -> list[dict[str, Any]]:
        """Level 1, for the system prompt: name and description of every skill of the release."""
        return list(self.call("GET", f"/spaces/{space}/skills"))

    def instructions(self, space: str, skill: str) -> str:
        """Level 2: the body of its SKILL.md."""
        return str(self.call("GET", f"/spaces/{space}/skills/{skill}")["instructions"])

    def upload_skill(self, tenant: str, archive: IO[bytes]) -> dict[str, Any]:
        """A .zip or .tar.gz into the catalog. Returns its version; the same content is the same one."""
        files = {"archive": ("skill.zip", archive)}
        return dict(self.call("POST", f"/tenants/{tenant}/skills", files=files))

    def install(self, space: str, version_ids: Sequence[str]) -> dict[str, Any]:
        """Build a release with these skill versions added, and wait for it."""
        build = self.call("POST", f"/spaces/{space}/builds", json={"add": list(version_ids)})
        while build["state"] in ("queued", "running"):
            time.sleep(1.0)
            build = self.call("GET", f"/spaces/{space}/builds/{build['id']}")
        return dict(build)

    def pages(self, path: str, **query: str) -> Iterator[dict[str, Any]]:
        """Every row of a list."""
        while True:
            body = self._send("GET", path, params=query).json()
            yield from body["data"]
            if body["next_cursor"] is None:
                return
            query["cursor"] = body["next_cursor"]

    def call(self, method: str, path: str, **options: Any) -> Any:
        """`data` of the answer; SkillyardError otherwise."""
        response = self._send(method, path, **options)
        return None if response.status_code == 204 else response.json()["data"]

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = dict(options.pop("headers", {}))
        if method == "POST":
            # So that a repeated create has one effect; ignored where nothing is created.
            headers.setdefault("Idempotency-Key", os.urandom(16).hex())
        for attempt in range(self.retries + 1):
            response = self.http.request(method, path, headers=headers, **options)
            error = _refusal(response)
            if error is None:
                return response
            if not error.retryable or attempt == self.retries:
                raise error
            time.sleep(error.retry_after_s or 1.0)
        raise AssertionError("unreachable")


class Session:
    def __init__(self, api: Skillyard, path: str) -> None:
        self.api, self.path = api, path

    def resolve(self) -> dict[str, Any]:
        """The session's sandbox, made, claimed or woken. Other calls do it by themselves."""
        return dict(self._call("POST", "/resolve", json={}))

    @contextmanager
    def turn(self) -> Iterator[None]:
        """One turn of the agent: within it the sandbox is not replaced under its feet."""
        self._call("POST", "/turns")
        try:
            yield
        finally:
            self._call("DELETE", "/turns")

    def exec(
        self,
        command: str | Sequence[str],
        *,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout_s: float = 60.0,
    ) -> CommandResult:
        """A command line for a shell, or an argument vector without one."""
        wish = _wish(stdin, env, timeout_s) | ({} if cwd is None else {"cwd": cwd})
        return CommandResult.from_json(self._call("POST", "/exec", json=_command(command) | wish))

    def stream(self, command: str | Sequence[str], *, timeout_s: float = 3600.0) -> Iterator[Event]:
        """The command's events as they happen. Leaving the loop early ends the command."""
        wish = _command(command) | {"timeout_s": timeout_s}
        with self.api.http.stream(
            "POST", f"{self.path}/exec", json=wish, headers={"Accept": "text/event-stream"}
        ) as response:
            if response.is_error:
                response.read()
                raise _refusal(response) or AssertionError("unreachable")
            for event in _events(response.iter_lines()):
                if event.name == "error":
                    raise SkillyardError(200, event.data, None)
                yield event

    def run_skill(
        self,
        skill: str,
        script: str,
        args: Sequence[str] = (),
        *,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 300.0,
    ) -> CommandResult:
        """A script of a skill, with the interpreter and packages that it was built with."""
        wish = {"script": script, "args": list(args)} | _wish(stdin, env, timeout_s)
        return CommandResult.from_json(self._call("POST", f"/skills/{skill}/run", json=wish))

    def stage(self, name: str, content: bytes | IO[bytes]) -> str:
        """Put a file where skills look for input. Returns its path."""
        staged = self._call("POST", "/inputs", files={"files": (name, content)})
        return str(staged[0]["path"])

    def unstage(self, name: str) -> None:
        """Take a file back, from this sandbox and every later one."""
        self._call("DELETE", "/inputs", params={"path": name})

    def outputs(self) -> list[dict[str, Any]]:
        """Files that skills made, as `path` and `size_bytes`."""
        entries = self._call("GET", "/outputs")["entries"]
        return [entry for entry in entries if entry["type"] == "file"]

    def read(self, path: str) -> bytes:
        return self.api._send("GET", f"{self.path}/files", params={"path": path}).content

    def write(self, path: str, content: bytes | Iterable[bytes]) -> None:
        self._call("PUT", "/files", params={"path": path}, content=content)

    def download_outputs(self, target: IO[bytes]) -> None:
        """All of them as one zip, with flat memory."""
        with self.api.http.stream("GET", f"{self.path}/outputs/archive") as response:
            if response.is_error:
                response.read()
                raise _refusal(response) or AssertionError("unreachable")
            for chunk in response.iter_bytes():
                target.write(chunk)

    def destroy(self) -> bool:
        """End the session: its sandbox goes with its files. False if there was none."""
        return bool(self._call("DELETE", "")["destroyed"])

    def _call(self, method: str, path: str, **options: Any) -> Any:
        return self.api.call(method, f"{self.path}{path}", **options)


def _command(command: str | Sequence[str]) -> dict[str, Any]:
    return {"command": command} if isinstance(command, str) else {"argv": list(command)}


def _wish(stdin: bytes | None, env: Mapping[str, str] | None, timeout_s: float) -> dict[str, Any]:
    wish: dict[str, Any] = {"env": dict(env or {}), "timeout_s": timeout_s}
    if stdin is not None:
        wish["stdin_base64"] = base64.b64encode(stdin).decode()
    return wish


def _output(data: Mapping[str, Any], stream: str) -> bytes:
    raw = data[f"{stream}_base64"]
    return str(data[stream]).encode() if raw is None else base64.b64decode(raw)


def _events(lines: Iterable[str]) -> Iterator[Event]:
    name = ""
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield Event(name, json.loads(value))


def _refusal(response: httpx.Response) -> SkillyardError | None:
    if response.is_success:
        return None
    try:
        error = response.json()["error"]
    except (ValueError, KeyError, TypeError):
        error = {"message": response.text[:300] or f"HTTP {response.status_code}"}
    retry = response.headers.get("Retry-After", "")
    return SkillyardError(response.status_code, error, float(retry) if retry.isdigit() else None)
