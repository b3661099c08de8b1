"""sandboxd's end of the spawner (`spawner/`): starts it, asks it, hears from it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandboxes.errors import (
    Capacity,
    Conflict,
    Internal,
    InvalidRequest,
    SandboxError,
    Terminal,
    Unavailable,
)
from sandboxes.sandboxd.engines.runc import seccomp
from sandboxes.sandboxd.engines.runc.bundle import CAPABILITIES
from sandboxes.sandboxd.engines.runc.records import process_start, write_json
from sandboxes.sandboxd.engines.runc.waiting import outcome

__all__ = ["Spawned", "SpawnerClient"]

_INLINE_BYTES = 64 * 1024
_MAX_MESSAGE_BYTES = 128 * 1024
_BOOT = "import sys; sys.path.append(sys.argv[1]); from spawner.main import main; main()"
_ERRORS: dict[str, type[SandboxError]] = {
    "invalid_request": InvalidRequest,
    "capacity": Capacity,
    "terminal": Terminal,
    "conflict": Conflict,
}


@dataclass(frozen=True, slots=True)
class Spawned:
    """`exited` gets the status as waitpid reports it, or Unavailable if the spawner died first."""

    id: int
    pid: int
    fds: list[int]
    exited: asyncio.Future[int]


class SpawnerClient:
    """One spawner process; another is started when it has died. `pid_file` names it, so that the
    next sandboxd can end one that did not notice the death of ours. `own_users`: each sandbox has a user
    namespace of its own, as those of runc do; Docker's have one only with `userns-remap`."""

    def __init__(self, pid_file: Path, *, own_users: bool = True) -> None:
        self._pid_file = pid_file
        self._own_users = own_users
        self._ids = itertools.count(1)
        self._starting: dict[int, asyncio.Future[Spawned]] = {}
        self._marks: dict[int, Callable[[int], None]] = {}
        self._exits: dict[int, asyncio.Future[int]] = {}
        self._socket: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        self.end_stale()
        async with self._lock:
            await self._ensure()

    def end_stale(self) -> None:
        with contextlib.suppress(FileNotFoundError, ValueError, KeyError, ProcessLookupError):
            record = json.loads(self._pid_file.read_text())
            if process_start(record["pid"]) == record["start"]:
                os.kill(record["pid"], 9)
        self._pid_file.unlink(missing_ok=True)

    async def aclose(self) -> None:
        """Ends the spawner. What it started goes on."""
        self._lost()
        if self._process is not None:
            await self._process.wait()
            self._process = None
        self._pid_file.unlink(missing_ok=True)

    async def spawn(
        self, request: dict[str, Any], fds: Sequence[int], *, on_mark: Callable[[int], None]
    ) -> Spawned:
        """The descriptors stay the caller's. Raises what the spawner reports. `on_mark` gets the
        namespace of a request that is to be `marked`; until it is known what became of that one, a
        cancelled caller waits."""
        spawn_id = next(self._ids)
        loop = asyncio.get_running_loop()
        started: asyncio.Future[Spawned] = loop.create_future()
        async with self._lock:
            await self._ensure()
            self._starting[spawn_id] = started
            if request["marked"]:
                self._marks[spawn_id] = on_mark
            try:
                await self._send(request | {"op": "spawn", "id": spawn_id}, fds)
            except BaseException:
                del self._starting[spawn_id]
                self._marks.pop(spawn_id, None)
                raise
        try:
            return await (outcome(started) if request["marked"] else started)
        except asyncio.CancelledError:
            if not started.cancelled() and started.done() and not started.exception():
                for fd in started.result().fds:
                    os.close(fd)
            raise

    async def signal(self, spawn_id: int, number: int) -> None:
        async with self._lock:
            if spawn_id in self._exits:
                await self._send({"op": "signal", "id": spawn_id, "signal": number}, [])

    async def _ensure(self) -> None:
        if self._socket is not None:
            return
        if self._process is not None:
            await self._process.wait()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c", _BOOT, str(Path(__file__).parent)),
                str(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                env={},
            )
        pid = self._process.pid
        write_json(self._pid_file, {"pid": pid, "start": process_start(pid)})
        ours.setblocking(False)
        self._socket = ours
        asyncio.get_running_loop().add_reader(ours, self._hear)
        program = base64.b64encode(await asyncio.to_thread(seccomp.compiled)).decode()
        capabilities = sorted(CAPABILITIES.values())
        configuration = {"capabilities": capabilities, "seccomp": program}
        await self._send({"op": "configure", "own_users": self._own_users, **configuration}, [])

    async def _send(self, message: dict[str, Any], fds: Sequence[int]) -> None:
        data = json.dumps(message).encode()
        if len(data) <= _INLINE_BYTES:
            await self._send_bytes(data, fds)
            return
        memfd = os.memfd_create("request")
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(memfd, view) :]
            await self._send_bytes(b'{"op": "memfd"}', [memfd, *fds])
        finally:
            os.close(memfd)

    async def _send_bytes(self, data: bytes, fds: Sequence[int]) -> None:
        while True:
            if self._socket is None:
                raise Unavailable("The spawner has died; try again.")
            try:
                socket.send_fds(self._socket, [data], fds)
                return
            except BlockingIOError:
                await asyncio.sleep(0.001)
            except OSError as error:
                self._lost()
                raise Unavailable("The spawner has died; try again.") from error

    def _hear(self) -> None:
        while self._socket is not None:
            try:
                data, fds, _, _ = socket.recv_fds(self._socket, _MAX_MESSAGE_BYTES, 1)
            except BlockingIOError:
                return
            except OSError:
                data, fds = b"", []
            if not data:
                self._lost()
                return
            self._handle(json.loads(data), fds)

    def _handle(self, message: dict[str, Any], fds: list[int]) -> None:
        if "exited" in message:
            exited = self._exits.pop(message["exited"], None)
            if exited is not None and not exited.done():
                exited.set_result(message["status"])
            return
        if "marked" in message:
            self._marks.pop(message["marked"])(fds.pop())
            return
        started = self._starting.pop(message.get("started") or message["failed"], None)
        if "started" in message:
            exited = asyncio.get_running_loop().create_future()
            self._exits[message["started"]] = exited
            if started is not None and not started.done():
                started.set_result(Spawned(message["started"], message["pid"], fds, exited))
                return
        elif started is not None and not started.done():
            self._marks.pop(message["failed"], None)
            kind = _ERRORS.get(message["kind"], Internal)
            started.set_exception(kind(message["message"]))
        for fd in fds:
            os.close(fd)

    def _lost(self) -> None:
        if self._socket is None:
            return
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        self._socket = None
        for started in self._starting.values():
            if not started.done():
                started.set_exception(Unavailable("The spawner has died; try again."))
        for exited in self._exits.values():
            if not exited.done():
                exited.set_exception(
                    Unavailable("The command's exit was lost with the spawner; run it again.")
                )
                exited.exception()
        self._starting.clear()
        self._marks.clear()
        self._exits.clear()
