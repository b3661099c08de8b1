"""Can this host run sandboxes? Every missing thing is named, with its mend, before anything runs."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from sandboxes.errors import Unsupported
from sandboxes.sandboxd.engines.runc.bundle import ID_COUNT, ID_OFFSET
from sandboxes.sandboxd.engines.runc.overlay import MAX_DATA_DIR_CHARS

__all__ = [
    "INIT",
    "PACKAGES",
    "check",
    "closed_parents",
    "data_dir_problems",
    "kernel_problems",
    "make_room_for_watches",
    "missing_programs",
    "others_with_our_ids",
    "prepare_folder",
]

INIT = "catatonit"

PACKAGES = {"runc": "runc", INIT: "catatonit", "setpriv": "util-linux", "cp": "coreutils"}
"""Program to the Debian package that has it."""

_MIN_KERNEL = (5, 14)  # cgroup.kill
_INOTIFY = {"max_user_instances": 65536, "max_user_watches": 4194304}
_NEEDED_CAPABILITIES = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
    "CAP_NET_ADMIN": 12,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_MKNOD": 27,
}


def check(data_dir: Path, *, passable: bool = False) -> None:
    """Raises one Unsupported with a sentence for each thing that is missing. `passable`: sandboxes
    need not pass through the folders above the data directory."""
    problems = [
        *missing_programs(PACKAGES),
        *kernel_problems(),
        *_privileges(),
        *data_dir_problems(data_dir),
        *([] if passable else _closed_parents(data_dir)),
    ]
    if problems:
        raise Unsupported(" ".join(problems))


def make_room_for_watches() -> str:
    """The kernel counts the inotify instances and watches of all sandboxes together, and with them
    those of the host's root. Its default of 128 instances is for one desktop. Returns what could
    not be raised, as a sentence, or nothing."""
    for name, wanted in _INOTIFY.items():
        path = Path("/proc/sys/fs/inotify", name)
        try:
            if int(path.read_text()) < wanted:
                path.write_text(str(wanted))
        except OSError:
            return f"Sandboxes share few file watches; run `sysctl fs.inotify.{name}={wanted}`."
    return ""


def others_with_our_ids() -> str:
    """Names the accounts whose own containers may run under the ids of our sandboxes; a sentence,
    or nothing."""
    found = set()
    for path in (Path("/etc/subuid"), Path("/etc/subgid")):
        for line in path.read_text().splitlines() if path.exists() else ():
            name, _, numbers = line.partition(":")
            first, _, count = numbers.partition(":")
            if first.isdigit() and count.isdigit():
                start, end = int(first), int(first) + int(count)
                if start < ID_OFFSET + ID_COUNT and end > ID_OFFSET:
                    found.add(name)
    if not found:
        return ""
    return (
        f"{', '.join(sorted(found))} may use the ids of the sandboxes in containers of their own, "
        "and so reach the sandboxes' processes; give them another range in /etc/subuid and "
        "/etc/subgid."
    )


def prepare_folder(path: Path, mode: int) -> None:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)


def missing_programs(packages: Mapping[str, str]) -> list[str]:
    missing = [package for program, package in packages.items() if not shutil.which(program)]
    if not missing:
        return []
    return [f"Programs are missing; run `apt-get install {' '.join(dict.fromkeys(missing))}`."]


def kernel_problems() -> list[str]:
    problems = []
    found = re.match(r"(\d+)\.(\d+)", platform.release())
    if platform.system() != "Linux" or not found:
        return ["The runc engine needs Linux."]
    if (int(found[1]), int(found[2])) < _MIN_KERNEL:
        problems.append(f"Linux {platform.release()} is too old; 5.14 or newer is needed.")
    if platform.machine() not in ("x86_64", "aarch64"):
        problems.append(f"{platform.machine()} is not supported; x86_64 and aarch64 are.")
    if "overlay" not in Path("/proc/filesystems").read_text().split():
        problems.append("The kernel's overlay file system is missing; run `modprobe overlay`.")
    namespaces = Path("/proc/sys/user/max_user_namespaces")
    if not namespaces.exists() or namespaces.read_text().strip() == "0":
        problems.append(
            "User namespaces are switched off; run `sysctl user.max_user_namespaces=10000`."
        )
    seccomp = Path("/proc/sys/kernel/seccomp/actions_avail")
    if not seccomp.exists() or "errno" not in seccomp.read_text().split():
        problems.append("The kernel was built without seccomp filters; use one that has them.")
    return problems


def _privileges() -> list[str]:
    if os.geteuid() != 0:
        return ["The runc engine needs root; start sandboxd as root."]
    line = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if "CapEff" in line
    )
    held = int(line.split()[1], 16)
    missing = [name for name, bit in _NEEDED_CAPABILITIES.items() if not held >> bit & 1]
    if not missing:
        return []
    return [f"sandboxd lacks {', '.join(missing)}; give them to its service or container."]


def data_dir_problems(data_dir: Path) -> list[str]:
    text = str(data_dir)
    if len(text) > MAX_DATA_DIR_CHARS or set(text) & set(":,\\ \n"):
        return [
            f"The data directory {text!r} must have at most {MAX_DATA_DIR_CHARS} characters, "
            "and none of them a blank, colon, comma or backslash; choose another."
        ]
    return []


def closed_parents(data_dir: Path) -> list[str]:
    """The folders above it that the root of a sandbox can't pass through."""
    return [
        str(parent)
        for parent in data_dir.parents
        if parent.exists() and not parent.stat().st_mode & 0o001
    ]


def _closed_parents(data_dir: Path) -> list[str]:
    closed = closed_parents(data_dir)
    if not closed:
        return []
    return [
        f"Root of a sandbox must be able to pass through {', '.join(closed)}; "
        f"run `chmod o+x {' '.join(closed)}` or choose another data directory."
    ]
