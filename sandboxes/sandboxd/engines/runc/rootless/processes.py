"""The processes of a sandbox and of each command in it, found without cgroups.

All of a sandbox are in its pid namespace. Each command is started in a cgroup namespace of its own:
nothing lies in it, but every descendant, daemonised or not, stays in it, since a sandbox holds no
capability (and the system call filter no call) to leave one. An open descriptor of a namespace
keeps its number from being given to another.

Freezing is SIGSTOP to every process, which those that watch their children can notice.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from sandboxes.errors import Internal
from sandboxes.sandboxd.engines.runc.records import process_start

__all__ = ["MarkedExec", "NamespaceGroups", "SandboxProcesses"]

_POLL_S = 0.002
_CLOCK_HZ = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_HANGS = "The processes of the sandbox did not stop in time; one hangs in the kernel."


class NamespaceGroups:
    """In place of `Cgroups`: there is nothing on the host to find or to remove."""

    def of(self, sandbox_id: str) -> SandboxProcesses:
        return SandboxProcesses()

    def existing(self) -> set[str]:
        return set()

    def remove_parent(self) -> None: ...


class _Namespace:
    """An open namespace of the kind that /proc/<pid>/ns calls `kind`."""

    def __init__(self, kind: str, fd: int) -> None:
        self._kind = kind
        self._fd = fd
        found = os.fstat(fd)
        self._key = (found.st_dev, found.st_ino)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()

    def members(self) -> Iterator[int]:
        return (int(name) for name in os.listdir("/proc") if name.isdigit() and self._has(name))

    def _has(self, pid: str | int) -> bool:
        try:
            found = os.stat(f"/proc/{pid}/ns/{self._kind}")
        except OSError:
            return False
        return self._fd >= 0 and (found.st_dev, found.st_ino) == self._key

    def signal(self, pid: int, number: int) -> None:
        """To that very member; none if it has gone."""
        with contextlib.suppress(ProcessLookupError):
            fd = os.pidfd_open(pid)
            try:
                if self._has(pid):
                    signal.pidfd_send_signal(fd, number)
            finally:
                os.close(fd)

    def stop(self, deadline: float) -> set[int]:
        """SIGSTOP to all, until a look finds no new one: who is to stop forks no more. Returns
        those that had not been stopped before."""
        seen: set[int] = set()
        stopped: set[int] = set()
        while new := set(self.members()) - seen:
            _still_time(deadline)
            seen |= new
            for pid in new:
                if _state(pid) not in "TtZX":
                    self.signal(pid, signal.SIGSTOP)
                    stopped.add(pid)
        return stopped


class MarkedExec:
    """One command and all that it leaves running. `mark` is set when it has been started."""

    directory: Path | None = None
    """None: it is not born into a cgroup."""

    def __init__(self) -> None:
        self._mark: _Namespace | None = None

    def mark(self, fd: int) -> None:
        self._mark = _Namespace("cgroup", fd)

    def populated(self) -> bool:
        return self._mark is not None and next(self._mark.members(), None) is not None

    async def kill(self, timeout_s: float = 10.0) -> None:
        mark = self._mark
        if mark is None:
            return
        deadline = time.monotonic() + timeout_s
        mark.stop(deadline)
        while members := list(mark.members()):
            _still_time(deadline)
            for pid in members:
                mark.signal(pid, signal.SIGKILL)
            await asyncio.sleep(_POLL_S)

    def remove(self) -> None:
        if self._mark is not None:
            self._mark.close()


class SandboxProcesses:
    """In place of `SandboxCgroup`."""

    path: str | None = None

    def __init__(self) -> None:
        self._init = 0
        self._pids: _Namespace | None = None
        self._stopped: set[int] = set()

    def attach(self, init_pid: int) -> None:
        with contextlib.suppress(OSError):
            fd = os.open(f"/proc/{init_pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
            self._pids, self._init = _Namespace("pid", fd), init_pid

    def v1_tasks(self) -> list[str]:
        return []

    def contains(self, pid: int) -> bool:
        return process_start(pid) > 0

    def make_exec(self, name: str) -> MarkedExec:
        return MarkedExec()

    def execs(self) -> set[MarkedExec]:
        return set()

    def frozen(self) -> bool:
        return _state(self._init) == "T"

    async def freeze(self, timeout_s: float = 10.0) -> None:
        if self._pids is None:
            return
        deadline = time.monotonic() + timeout_s
        try:
            self._stopped |= self._pids.stop(deadline)
            while any(_state(pid) not in "TtZX" for pid in self._stopped):
                _still_time(deadline)
                await asyncio.sleep(_POLL_S)
        except BaseException:
            self.thaw()
            raise

    def thaw(self) -> None:
        """Those that were stopped by us, not by their own shell. After a crash that is not known
        any more, and all are. Children first: no parent then finds one stopped."""
        if self._pids is None:
            return
        for pid in sorted(self._stopped or self._pids.members(), reverse=True):
            self._pids.signal(pid, signal.SIGCONT)
        self._stopped = set()

    async def kill(self, timeout_s: float = 10.0) -> None:
        """The kernel ends all of a pid namespace with its init."""
        if self._pids is None:
            return
        deadline = time.monotonic() + timeout_s
        while any(_state(pid) not in "ZX" for pid in self._pids.members()):
            _still_time(deadline)
            self._pids.signal(self._init, signal.SIGKILL)
            await asyncio.sleep(_POLL_S)

    def kill_stragglers(self) -> None: ...

    async def remove(self, timeout_s: float = 5.0) -> None:
        if self._pids is not None:
            self._pids.close()

    def cpu_seconds(self) -> float:
        """Of those that run, and of their children that they have waited for."""
        return sum(sum(map(int, fields[11:15])) for fields in self._stats()) / _CLOCK_HZ

    def memory_bytes(self) -> tuple[int, int]:
        return sum(int(fields[21]) for fields in self._stats()) * _PAGE_BYTES, 0

    def _stats(self) -> Iterator[list[str]]:
        members = self._pids.members() if self._pids is not None else iter(())
        return (fields for pid in members if len(fields := _stat(pid)) > 21)


def _stat(pid: int) -> list[str]:
    """The fields of proc(5) after the name, the state first; X alone if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ["X"]
    return text[text.rindex(")") + 2 :].split()


def _state(pid: int) -> str:
    return _stat(pid)[0]


def _still_time(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise Internal(_HANGS)
