"""Can this account run sandboxes? Every missing thing is named, with its mend, in one answer."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sandboxes.errors import Unsupported
from sandboxes.sandboxd.engines.runc import host
from sandboxes.sandboxd.engines.runc.bundle import ID_COUNT, ID_OFFSET

__all__ = ["Ranges", "add_system_folders", "check", "ranges"]

_PACKAGES = {
    "newuidmap": "uidmap",
    "newgidmap": "uidmap",
    "unshare": "util-linux",
    "nsenter": "util-linux",
}
"""Beside those that root needs too."""

_SWITCHES = {
    "kernel/unprivileged_userns_clone": ("0", "kernel.unprivileged_userns_clone=1"),
    "kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    "user/max_user_namespaces": ("0", "user.max_user_namespaces=10000"),
}
"""By sysctl: the value that forbids, and the setting that allows."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """The first of the ids that the account may map; `ID_COUNT` follow."""

    first_uid: int
    first_gid: int


def check(data_dir: Path) -> None:
    """Raises one Unsupported with a sentence for each thing that is missing."""
    add_system_folders()
    problems = [
        *host.missing_programs(host.PACKAGES | _PACKAGES),
        *host.kernel_problems(),
        *_range_problems(),
        *_namespace_problems(),
        *host.data_dir_problems(data_dir),
    ]
    if problems:
        raise Unsupported(" ".join(["Without root, something is missing.", *problems]))


def add_system_folders() -> None:
    """To PATH: that of a plain account may lack where runc is."""
    known = os.environ.get("PATH", "").split(":")
    folders = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin")
    os.environ["PATH"] = ":".join([*known, *(f for f in folders if f not in known)])


def ranges() -> Ranges | None:
    """Of this account; None if it has none that is large enough."""
    first_uid, first_gid = _first(Path("/etc/subuid")), _first(Path("/etc/subgid"))
    return Ranges(first_uid, first_gid) if first_uid and first_gid else None


def _entries(path: Path) -> list[tuple[str, int, int]]:
    lines = path.read_text().splitlines() if path.exists() else []
    split = (line.split(":") for line in lines)
    return [
        (fields[0], int(fields[1]), int(fields[2]))
        for fields in split
        if len(fields) == 3 and fields[1].isdigit() and fields[2].isdigit()
    ]


def _first(path: Path) -> int | None:
    names = {getpass.getuser(), str(os.geteuid())}
    found = (first for name, first, count in _entries(path) if name in names and count >= ID_COUNT)
    return next(found, None)


def _range_problems() -> list[str]:
    if ranges() is not None:
        return []
    # Past everybody's, and past that of root's own sandboxes.
    taken = [*_entries(Path("/etc/subuid")), *_entries(Path("/etc/subgid"))]
    first = max([ID_OFFSET + ID_COUNT, *(start + count for _, start, count in taken)])
    block = f"{first}-{first + ID_COUNT - 1}"
    user = getpass.getuser()
    return [
        f"{user} has no {ID_COUNT} ids to map; as root run `usermod --add-subuids {block} "
        f"--add-subgids {block} {user}`."
    ]


def _namespace_problems() -> list[str]:
    """Tried, not guessed: namespaces, and a /proc in them, as a sandbox has."""
    if shutil.which("unshare") is None:
        return []
    kinds = ("--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", "--mount-proc")
    done = subprocess.run(["unshare", *kinds, "true"], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return []
    mends = [
        mend
        for name, (forbids, mend) in _SWITCHES.items()
        if (path := Path("/proc/sys", name)).exists() and path.read_text().strip() == forbids
    ]
    if mends:
        return [f"Namespaces are closed to plain accounts; as root run `sysctl {' '.join(mends)}`."]
    return [
        f"Namespaces are closed to plain accounts ({done.stderr.strip()}); in a container, start "
        "it with an unmasked /proc and a seccomp profile that allows unshare."
    ]
