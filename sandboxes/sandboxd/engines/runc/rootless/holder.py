"""The namespaces of one data directory's sandboxes, kept by a process that does nothing else.

It outlives sandboxd, as the sandboxes do, so that the next sandboxd finds their mounts again. When
it dies, the mounts are gone; whoever comes next ends what still ran on them. Inside, id 0 is the
account itself and `ID_OFFSET` on are the ids that it may map: as root sees them on the host.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from sandboxes.errors import Unsupported
from sandboxes.sandboxd.engines.runc.bundle import ID_COUNT, ID_OFFSET
from sandboxes.sandboxd.engines.runc.host import INIT, closed_parents
from sandboxes.sandboxd.engines.runc.records import (
    SandboxRecord,
    boot_id,
    process_start,
    write_json,
)
from sandboxes.sandboxd.engines.runc.rootless import checks

__all__ = ["Holder", "current", "enter", "run_inside"]

_VARIABLE = "SKILLYARD_SANDBOXD_HOLDER"
"""Set by `enter` for what it starts: the file that describes the holder."""

_WAIT_S = 10.0
_PR_GET_PDEATHSIG = 2
_IN_FOLDER = 'cd "$1" && shift && exec "$@"'
# An empty directory of every Debian: hidden by our mount, in our namespace only.
_EMPTY_FOLDERS = (Path("/mnt"), Path("/media"), Path("/srv"))


@dataclass(frozen=True, slots=True)
class Holder:
    """`mounts` is where roots of sandboxes are mounted if they could not pass through the parents
    of the data directory, else empty."""

    pid: int
    start: int
    boot_id: str
    mounts: str = ""

    def alive(self) -> bool:
        return self.boot_id == boot_id() and process_start(self.pid) == self.start

    def end(self) -> None:
        """Idempotent. The mounts go with it, once sandboxd itself has ended."""
        if self.alive():
            os.kill(self.pid, 9)


def current() -> Holder | None:
    """That of this process, if `enter` brought it here. Never for the host's root, whatever its
    environment says: its sandboxes have their limits."""
    path = os.environ.get(_VARIABLE)
    if not path or len(Path("/proc/self/uid_map").read_text().splitlines()) != 2:
        return None
    return Holder(**json.loads(Path(path).read_text()))


def enter(data_dir: Path, command: Sequence[str]) -> NoReturn:
    """Replaces this process by that command inside the holder, which is started if there is
    none. Unsupported, naming everything that is missing, if the host does not permit it."""
    data_dir = data_dir.absolute()
    checks.check(data_dir)
    data_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
    file = data_dir / "holder.json"
    with _lock(data_dir / "holder.lock"):
        holder = _find(file)
        if holder is None:
            _end_orphans(data_dir / "sandboxes")
            holder = _start(mounts=bool(closed_parents(data_dir)))
            write_json(file, asdict(holder))
    os.environ[_VARIABLE] = str(file)
    argv = _entering(holder, [*_death_signal(), *command])
    os.execvp(argv[0], argv)  # noqa: S606 - no shell is wanted


def run_inside(data_dir: Path, command: Sequence[str]) -> int:
    """Runs a command to its end in such namespaces of its own, and returns its exit code."""
    checks.check(data_dir.absolute())
    holder = _start(mounts=False)
    try:
        return subprocess.run(_entering(holder, command), check=False).returncode
    finally:
        holder.end()


def _entering(holder: Holder, command: Sequence[str]) -> list[str]:
    enter = ["nsenter", "--preserve-credentials", "--user", "--mount", "--target", str(holder.pid)]
    return [*enter, "--", "sh", "-c", _IN_FOLDER, "sh", str(Path.cwd()), *command]


def _death_signal() -> list[str]:
    """The command that gives us back the signal of our parent's death, which the kernel clears when
    a process enters a user namespace."""
    number = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_PDEATHSIG, ctypes.byref(number), 0, 0, 0)
    if not number.value:
        return []
    name = signal.Signals(number.value).name.removeprefix("SIG")
    return ["setpriv", f"--pdeathsig={name}", "--"]


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _find(file: Path) -> Holder | None:
    try:
        holder = Holder(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return holder if holder.alive() else None


def _end_orphans(sandboxes: Path) -> None:
    """Sandboxes that outlived their mounts. From here they can be reached: we own the namespaces
    that theirs are in."""
    for path in sandboxes.glob("*/engine.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            record = SandboxRecord.load(path)
            if record.init_alive():
                os.kill(record.init_pid, 9)


def _start(*, mounts: bool) -> Holder:
    found = checks.ranges()
    if found is None:
        raise Unsupported("This account has no ids to map in /etc/subuid and /etc/subgid.")
    process = subprocess.Popen(
        ["unshare", "--user", "--mount", "--propagation", "private", INIT, "-P"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )
    try:
        _await_namespaces(process)
        _map("newuidmap", process.pid, os.geteuid(), found.first_uid)
        _map("newgidmap", process.pid, os.getegid(), found.first_gid)
        holder = Holder(process.pid, process_start(process.pid), boot_id())
        if mounts:
            holder = _with_mounts(holder)
    except BaseException:
        process.kill()
        process.wait()
        raise
    process.returncode = 0  # it is nobody's child from now on
    return holder


def _await_namespaces(process: subprocess.Popen[bytes]) -> None:
    """Until it has become the init, which is after it has unshared."""
    deadline = time.monotonic() + _WAIT_S
    while time.monotonic() < deadline and process.poll() is None:
        if Path(f"/proc/{process.pid}/comm").read_text().strip() == INIT:
            return
        time.sleep(0.002)
    raise Unsupported("A user namespace could not be made; see `unshare --user --mount true`.")


def _map(program: str, pid: int, own: int, first: int) -> None:
    numbers = (0, own, 1, ID_OFFSET, first, ID_COUNT)
    done = subprocess.run(
        [program, str(pid), *map(str, numbers)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise Unsupported(
            f"{program} refused the ids ({done.stderr.strip()}); reinstall the package uidmap, and "
            "look at /etc/subuid and /etc/subgid."
        )


def _with_mounts(holder: Holder) -> Holder:
    for folder in _EMPTY_FOLDERS:
        if not folder.is_dir() or any(folder.iterdir()):
            continue
        mount = ["mount", "-t", "tmpfs", "-o", "mode=711,size=1m,nosuid,nodev", "none", str(folder)]
        done = subprocess.run(_entering(holder, mount), capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return Holder(holder.pid, holder.start, holder.boot_id, str(folder))
    names = ", ".join(map(str, _EMPTY_FOLDERS))
    raise Unsupported(
        f"None of {names} is an empty directory, which is needed where others may not pass through "
        "the folders above the data directory; run `chmod o+x` on those, or empty one of these."
    )
