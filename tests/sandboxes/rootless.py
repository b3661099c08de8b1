"""A throw-away account with ids of its own to map, and a sandboxd that runs as it."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import secrets
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sandboxes.sandboxd.templates import ID_SHIFT, TemplateStore
from sandboxes.sandboxd.templates.commands import default_templates_dir
from tests.sandboxes import daemon as daemons

__all__ = [
    "Account",
    "account",
    "base_tar",
    "holder",
    "leftovers",
    "processes_of",
    "start",
    "why_not",
]

_CHECKOUT = Path(__file__).parents[2]
# Far from those that useradd gives to real accounts, and from those of root's own sandboxes.
_FIRST_ID = 1_500_000_000
_ID_COUNT = 65_536


@dataclass(frozen=True, slots=True)
class Account:
    name: str
    uid: int
    home: Path
    mapped: range
    """The ids on the host that its sandboxes run under."""

    def command(self, *argv: str) -> list[str]:
        """Runs as the account, with its own HOME and nothing of ours."""
        environ = {
            "HOME": str(self.home),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
        }
        values = [f"{name}={value}" for name, value in environ.items()]
        ids = [f"--reuid={self.name}", f"--regid={self.name}", "--init-groups"]
        return ["setpriv", *ids, "env", "-i", "-C", str(_CHECKOUT), *values, *argv]

    def sandboxd(self, *argv: str) -> list[str]:
        return self.command(sys.executable, "-m", "sandboxes.sandboxd", *argv)

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """A command of sandboxd's, to its end."""
        return subprocess.run(self.sandboxd(*argv), capture_output=True, text=True, check=False)


def why_not() -> str | None:
    """Why no such account can be made and used here."""
    if reason := daemons.why_not():
        return reason
    if shutil.which("useradd") is None or shutil.which("newuidmap") is None:
        return "needs useradd and newuidmap; install passwd uidmap"
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c", ""],
        capture_output=True,
        cwd=_CHECKOUT,
    )
    if done.returncode != 0:
        return f"needs a checkout that other accounts can read, which {_CHECKOUT} is not"
    return None


@contextlib.contextmanager
def account(*, ids: bool = True) -> Iterator[Account]:
    """Gone afterwards, with its home, its ids and whatever it left running. Its home is closed to
    others, as Debian makes homes."""
    name = f"sy-{secrets.token_hex(4)}"
    subprocess.run(["useradd", "--create-home", "-K", "SUB_UID_COUNT=0", name], check=True)
    entry = pwd.getpwnam(name)
    home = Path(entry.pw_dir)
    home.chmod(0o700)
    first = _FIRST_ID + secrets.randbelow(1000) * _ID_COUNT
    block = f"{first}-{first + _ID_COUNT - 1}"
    try:
        if ids:
            subprocess.run(
                ["usermod", "--add-subuids", block, "--add-subgids", block, name], check=True
            )
        yield Account(name, entry.pw_uid, home, range(first, first + _ID_COUNT))
    finally:
        ours = {entry.pw_uid, *range(first, first + _ID_COUNT)}
        for pid in processes_of(ours):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        _until_gone(ours)
        subprocess.run(["userdel", "--remove", name], check=True, capture_output=True)


def processes_of(uids: set[int] | range) -> list[int]:
    """Those that run under these ids on the host."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                if folder.stat().st_uid in uids and state != "Z":
                    found.append(int(folder.name))
    return found


def _until_gone(uids: set[int]) -> None:
    deadline = time.monotonic() + 10
    while processes_of(uids) and time.monotonic() < deadline:
        time.sleep(0.02)


def holder(daemon: daemons.Daemon) -> int:
    """The pid of the process that keeps the namespaces."""
    return int(json.loads((daemon.data_dir / "holder.json").read_text())["pid"])


def leftovers(daemon: daemons.Daemon, account: Account, sandbox_id: str) -> list[str]:
    """Mounts, processes, networks and files of a sandbox, also where root does not see them."""
    found = [
        f"process {pid}"
        for pid in processes_of(account.mapped)
        if sandbox_id in _text(f"/proc/{pid}/mountinfo")
    ]
    mounts = _text(f"/proc/{holder(daemon)}/mountinfo").splitlines()
    found += [f"mount {line}" for line in mounts if sandbox_id in line]
    network = daemon.data_dir / "network"
    found += [f"network {path}" for path in network.glob(f"{sandbox_id}*")]
    return found + daemons.leftovers(daemon, sandbox_id)


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def base_tar(target: Path) -> Path:
    """The base template of this host, as its tar would be."""
    rootfs = TemplateStore(default_templates_dir()).get(daemons.base_template()).rootfs

    def unshifted(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid, member.gid = member.uid - ID_SHIFT, member.gid - ID_SHIFT
        member.uname = member.gname = ""
        return member

    with tarfile.open(target, "w") as archive:
        archive.add(rootfs, arcname=".", filter=unshifted)
    target.chmod(0o644)
    return target


@contextlib.contextmanager
def start(account: Account) -> Iterator[daemons.Daemon]:
    """A sandboxd that runs as the account, on what that has by default."""
    data = account.home / ".local/share/skillyard"
    # As the product's supervisor runs it: to end with whoever started it.
    argv = ["setpriv", "--pdeathsig=TERM", "--", *account.sandboxd("serve")]
    daemon = daemons.Daemon(argv, data / "sandboxd", data / "run/sandboxd.sock", data / "log")
    try:
        daemon.run()
        yield daemon
    finally:
        daemon.stop()
