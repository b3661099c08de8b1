"""The spawner's loop: requests come in, children go out, their ends are told.

One SOCK_SEQPACKET socket to sandboxd, one JSON object a message; descriptors travel beside it.

in:   {"op": "configure", "capabilities": [int], "seccomp": base64, "own_users": bool}
      {"op": "spawn", "id": int, ...}          + pidfd of the sandbox's init, directory of the exec's
                                                 cgroup (unless it is to be marked by a namespace),
                                                 stdin, stdout, stderr (not for a terminal)
      {"op": "signal", "id": int, "signal": int}
      {"op": "memfd"}                          + a memfd that holds a larger message, then its own
out:  {"marked": id}                           + its cgroup namespace, before all else
      {"started": id, "pid": int}              + the terminal's master, for a terminal
      {"failed": id, "kind": str, "message": str}
      {"exited": id, "status": int}              as waitpid reports it

It ends when sandboxd closes the socket or dies. What it started goes on: the sandboxes are not
its own.
"""

from __future__ import annotations

import binascii
import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import sys
from dataclasses import dataclass, field
from typing import Any

from . import entry, kernel

_MAX_REQUEST_BYTES = 80 * 1024
_MAX_REPORT_BYTES = 8 * 1024
_MAX_FDS = 8
_DIED_EARLY = (
    "capacity",
    "The command was killed before it started: the sandbox is out of memory or is being killed; "
    "free some memory and try again.",
)


@dataclass(slots=True)
class Birth:
    """A command on its way: its channel, the process that goes ahead, the one that becomes it."""

    id: int
    channel: socket.socket
    first: int
    pid: int | None = None
    ready: dict[str, Any] | None = None
    ready_fds: list[int] = field(default_factory=list)
    told: bool = False


class Spawner:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._selector = selectors.DefaultSelector()
        self._confinement: entry.Confinement | None = None
        self._devnull = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self._by_first: dict[int, Birth] = {}
        self._births: dict[int, Birth] = {}
        """By spawn id, those whose channel is open: not everything that they say was heard."""
        self._running: dict[int, int] = {}
        """Host pid to spawn id, of those whose exit somebody waits for."""
        self._unclaimed: dict[int, int] = {}
        """Exit statuses of children that have not been introduced yet."""

    def run(self) -> None:
        wakeup, wakeup_end = socket.socketpair()
        for end in (wakeup, wakeup_end):
            end.setblocking(False)
        signal.set_wakeup_fd(wakeup_end.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # A terminal's Ctrl-C goes to the whole foreground group; sandboxd decides when we end.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._selector.register(self._control, selectors.EVENT_READ)
        self._selector.register(wakeup, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._control:
                    if not self._receive():
                        return
                elif key.fileobj is wakeup:
                    wakeup.recv(4096)
                    self._reap()
                elif key.fd == key.data.channel.fileno():
                    self._hear(key.data)

    def _receive(self) -> bool:
        data, fds, _, _ = socket.recv_fds(self._control, _MAX_REQUEST_BYTES, _MAX_FDS)
        if not data:
            return False
        try:
            message = json.loads(data)
            if message["op"] == "memfd":
                with open(fds.pop(0), "rb") as file:
                    file.seek(0)
                    message = json.loads(file.read())
            if message["op"] == "configure":
                self._confinement = entry.Confinement(
                    frozenset(message["capabilities"]),
                    binascii.a2b_base64(message["seccomp"]),
                    os.open("/proc/sys/user", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC),
                    message["own_users"],
                )
            elif message["op"] == "spawn":
                self._spawn(message, fds)
            elif message["op"] == "signal":
                self._signal(message["id"], message["signal"])
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _spawn(self, request: dict[str, Any], fds: list[int]) -> None:
        if self._confinement is None:
            raise RuntimeError("spawn came before configure")
        pidfd, *stdio = fds
        cgroup = None if request["marked"] else stdio.pop(0)
        if not request["terminal"] and len(stdio) == 2:
            stdio.insert(0, self._devnull)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            child = kernel.clone(0, cgroup)
        except OSError as error:
            ours.close()
            theirs.close()
            # EAGAIN is the pids limit of a cgroup, ENODEV a cgroup that was removed meanwhile.
            kind = "capacity" if isinstance(error, BlockingIOError) else "terminal"
            self._tell({"failed": request["id"], "kind": kind, "message": str(error)})
            return
        if child == 0:
            entry.enter(request, [pidfd, *stdio], theirs, self._confinement)
        theirs.close()
        ours.setblocking(False)
        birth = Birth(request["id"], ours, child)
        self._by_first[child] = self._births[birth.id] = birth
        self._selector.register(ours, selectors.EVENT_READ, birth)

    def _hear(self, birth: Birth) -> bool:
        """One message of a child on its way; False if there is none."""
        try:
            data, fds, _, _ = socket.recv_fds(birth.channel, _MAX_REPORT_BYTES, 1)
        except BlockingIOError:
            return False
        if not data:
            self._close(birth)
            return False
        message = json.loads(data)
        if "child" in message:
            birth.pid = message["child"]
            if fds:
                self._tell({"marked": birth.id}, fds)
                os.close(fds[0])
        elif "ready" in message:
            birth.ready, birth.ready_fds = message, fds
        elif "error" in message:
            self._fail(birth, message["error"], message["message"])
        if birth.ready and birth.pid is not None and not birth.told:
            self._introduce(birth, birth.pid, birth.ready["ready"])
        return True

    def _introduce(self, birth: Birth, host_pid: int, pid: int) -> None:
        birth.told = True
        self._tell({"started": birth.id, "pid": pid}, birth.ready_fds)
        for fd in birth.ready_fds:
            os.close(fd)
        if host_pid in self._unclaimed:
            self._tell({"exited": birth.id, "status": self._unclaimed.pop(host_pid)})
        else:
            self._running[host_pid] = birth.id

    def _fail(self, birth: Birth, kind: str, message: str) -> None:
        if not birth.told:
            birth.told = True
            self._tell({"failed": birth.id, "kind": kind, "message": message})

    def _close(self, birth: Birth) -> None:
        """Nobody holds the other end any more: the command runs, or they died on the way."""
        if birth.channel.fileno() < 0:
            return
        self._selector.unregister(birth.channel)
        birth.channel.close()
        del self._births[birth.id]
        self._fail(birth, *_DIED_EARLY)

    def _signal(self, spawn_id: int, number: int) -> None:
        # No one else reaps these, so a pid in the table can't have been given to another process.
        for pid, known in self._running.items():
            if known == spawn_id:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._by_first:
                birth = self._by_first.pop(pid)
                while birth.channel.fileno() >= 0 and self._hear(birth):
                    pass
                if birth.pid is None:
                    self._fail(birth, *_DIED_EARLY)
            elif pid in self._running:
                self._tell({"exited": self._running.pop(pid), "status": status})
            elif any(birth.pid in (None, pid) for birth in self._births.values()):
                # Its exit can be seen before its introduction is heard.
                self._unclaimed[pid] = status
            if not self._births:
                # Whoever is still unclaimed failed before it was anybody's command.
                self._unclaimed.clear()

    def _tell(self, message: dict[str, Any], fds: list[int] | None = None) -> None:
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], fds or [])
        except OSError:
            sys.exit(0)


def main() -> None:
    """`argv[-1]` is the descriptor of the socket to sandboxd."""
    control = socket.socket(fileno=int(sys.argv[-1]))
    os.environ.clear()
    os.chdir("/")
    os.umask(0o022)
    kernel.forbid_inspection()
    kernel.new_session_keyring()
    os.setsid()
    kernel.default_signals()
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    # A collection would write to every page that the children share with us.
    gc.disable()
    Spawner(control).run()
