"""The cgroups of sandboxes, on a pure cgroup v2 host and on a hybrid one (v1 controllers, and a
cgroup2 mount beside them).

runc makes a sandbox's cgroup, in every hierarchy, and sets its limits. The rest happens here, and
mostly in the cgroup2 hierarchy, whose `cgroup.freeze` and `cgroup.kill` are core files that need no
controller: one file write reaches every process below, daemonised or not. Each exec has a child
cgroup of its own there. No controllers are enabled below a sandbox's cgroup, so processes may
live both in it and under it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sandboxes.errors import Internal, Unsupported

__all__ = ["Cgroups", "ExecCgroup", "SandboxCgroup"]

_POLL_S = 0.002
_LIMIT_CONTROLLERS = ("memory", "pids", "cpu")


@dataclass(frozen=True, slots=True)
class Cgroups:
    """Where this host's hierarchies are mounted. `parent` is the name below each root under which
    this data directory's sandboxes live."""

    unified: Path
    v1: dict[str, Path]
    parent: str

    @classmethod
    def probe(cls, parent: str) -> Cgroups:
        """Raises Unsupported with the mend if there is no usable cgroup2 hierarchy."""
        unified: list[Path] = []
        v1: dict[str, Path] = {}
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            left, right = line.split(" - ")
            point = Path(left.split()[4])
            kind, _, options = right.split(" ", 2)
            if kind == "cgroup2":
                unified.append(point)
            elif kind == "cgroup":
                names = [option for option in options.split(",") if option not in ("rw", "ro")]
                v1[",".join(names)] = point
        if not unified:
            raise Unsupported(
                "No cgroup2 hierarchy is mounted; run `mount -t cgroup2 none /sys/fs/cgroup/unified`."
            )
        found = cls(unified[0], v1, parent)
        missing = [name for name in _LIMIT_CONTROLLERS if not found.has_controller(name)]
        if missing:
            raise Unsupported(
                f"The kernel's {', '.join(missing)} cgroup controllers are missing; enable them "
                "(kernel option cgroup_enable, or cgroup.subtree_control in a container)."
            )
        if not os.access(found.unified / "cgroup.procs", os.W_OK):
            raise Unsupported(f"{found.unified} can't be written; run sandboxd as root.")
        return found

    @property
    def path(self) -> str:
        return f"/{self.parent}"

    def has_controller(self, name: str) -> bool:
        if self.controller(name) is not None:
            return True
        return name in (self.unified / "cgroup.controllers").read_text().split()

    def controller(self, name: str) -> Path | None:
        """The v1 hierarchy of a controller, or None where cgroup2 has it."""
        return next((root for names, root in self.v1.items() if name in names.split(",")), None)

    def roots(self) -> Iterator[Path]:
        yield self.unified
        yield from self.v1.values()

    def of(self, sandbox_id: str) -> SandboxCgroup:
        return SandboxCgroup(self, sandbox_id)

    def existing(self) -> set[str]:
        """Ids of all sandboxes that have a cgroup in any hierarchy."""
        found: set[str] = set()
        for root in self.roots():
            with contextlib.suppress(FileNotFoundError):
                found |= {e.name for e in os.scandir(root / self.parent) if e.is_dir()}
        return found

    def remove_parent(self) -> None:
        """Leave no trace of an engine that has no sandbox."""
        for root in self.roots():
            with contextlib.suppress(OSError):
                (root / self.parent).rmdir()


@dataclass(frozen=True, slots=True)
class SandboxCgroup:
    cgroups: Cgroups
    sandbox_id: str

    @property
    def path(self) -> str:
        """As runc is told: below the root of each hierarchy."""
        return f"/{self.cgroups.parent}/{self.sandbox_id}"

    @property
    def unified(self) -> Path:
        return self.cgroups.unified / self.path[1:]

    def attach(self, init_pid: int) -> None:
        """Nothing to do: runc has put it there."""

    def v1_tasks(self) -> list[str]:
        """The files through which a process joins the sandbox's v1 cgroups."""
        return [str(root / self.path[1:] / "tasks") for root in self.cgroups.v1.values()]

    def contains(self, pid: int) -> bool:
        try:
            text = Path(f"/proc/{pid}/cgroup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False
        unified = next((line[3:] for line in text.splitlines() if line.startswith("0::")), "")
        return f"{unified}/".startswith(f"{self.path}/")

    def make_exec(self, name: str) -> ExecCgroup:
        path = self.unified / name
        path.mkdir()
        return ExecCgroup(path)

    def execs(self) -> set[ExecCgroup]:
        with contextlib.suppress(FileNotFoundError):
            entries = os.scandir(self.unified)
            return {ExecCgroup(Path(entry.path)) for entry in entries if entry.is_dir()}
        return set()

    def frozen(self) -> bool:
        try:
            return (self.unified / "cgroup.freeze").read_text().strip() == "1"
        except FileNotFoundError:
            return False

    async def freeze(self, timeout_s: float = 10.0) -> None:
        """Returns when every process stands still. Undone if that takes too long."""
        (self.unified / "cgroup.freeze").write_text("1")
        try:
            await _until(lambda: _event(self.unified, "frozen") == 1, timeout_s)
        except BaseException:
            self.thaw()
            raise

    def thaw(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self.unified / "cgroup.freeze").write_text("0")

    async def kill(self, timeout_s: float = 10.0) -> None:
        """SIGKILL to all of the sandbox, frozen or not; returns when none is left."""
        await _kill_all(self.unified, timeout_s)

    async def remove(self, timeout_s: float = 5.0) -> None:
        """Idempotent. The processes must be gone."""
        deadline = time.monotonic() + timeout_s
        for root in self.cgroups.roots():
            top = root / self.path[1:]
            while not _remove_tree(top):
                if time.monotonic() > deadline:
                    raise Internal(f"The cgroup {top} can't be removed: something still uses it.")
                await asyncio.sleep(_POLL_S)

    def kill_stragglers(self) -> None:
        """Processes that reached a v1 cgroup of the sandbox but not its unified one: runc's own
        children, if it was killed while it set up."""
        for root in self.cgroups.v1.values():
            with contextlib.suppress(FileNotFoundError):
                for pid in (root / self.path[1:] / "cgroup.procs").read_text().split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), 9)

    def cpu_seconds(self) -> float:
        """Used so far."""
        if folder := self._v1("cpuacct"):
            return int((folder / "cpuacct.usage").read_text()) / 1e9
        return _fields(self.unified / "cpu.stat")["usage_usec"] / 1e6

    def memory_bytes(self) -> tuple[int, int]:
        """(used without cache, cache)."""
        if folder := self._v1("memory"):
            total = int((folder / "memory.usage_in_bytes").read_text())
            cache = _fields(folder / "memory.stat")["total_cache"]
        else:
            total = int((self.unified / "memory.current").read_text())
            cache = _fields(self.unified / "memory.stat")["file"]
        return max(0, total - cache), cache

    def _v1(self, controller: str) -> Path | None:
        root = self.cgroups.controller(controller)
        return None if root is None else root / self.path[1:]


@dataclass(frozen=True, slots=True)
class ExecCgroup:
    """The cgroup of one command and of all that it leaves running."""

    directory: Path

    def mark(self, fd: int) -> None:
        os.close(fd)

    async def kill(self) -> None:
        """SIGKILL to all of it; returns when none is left. Idempotent."""
        await _kill_all(self.directory)

    def populated(self) -> bool:
        try:
            return _event(self.directory, "populated") == 1
        except OSError:
            return False

    def remove(self) -> None:
        """Stays while a process is in it."""
        with contextlib.suppress(OSError):
            self.directory.rmdir()


async def _kill_all(path: Path, timeout_s: float = 10.0) -> None:
    """SIGKILL to every process in and below a cgroup2 directory; returns when none is left.
    Idempotent; a directory that is gone holds nobody."""
    try:
        (path / "cgroup.kill").write_text("1")
        await _until(lambda: _event(path, "populated") == 0, timeout_s)
    except OSError as error:
        # ENODEV: removed between opening and writing.
        if error.errno not in (errno.ENOENT, errno.ENODEV):
            raise Internal(f"{path} could not be killed ({error.strerror}).") from error


def _event(path: Path, name: str) -> int:
    return _fields(path / "cgroup.events")[name]


def _fields(path: Path) -> dict[str, int]:
    return {k: int(v) for k, v in (line.split() for line in path.read_text().splitlines())}


async def _until(condition: Callable[[], bool], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise Internal(
                "The processes of the sandbox did not stop in time; one hangs in the kernel."
            )
        await asyncio.sleep(_POLL_S)


def _remove_tree(top: Path) -> bool:
    for folder, _, _ in os.walk(top, topdown=False):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True
