"""What sandboxes leave on a host. Every suite that makes some asks at its end for an empty list.

Stand-alone: it reads the kernel's tables and asks nothing of the code under test.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

__all__ = ["leaks", "parent_cgroup"]


def parent_cgroup(data_dir: Path) -> str:
    """The name, below each hierarchy's root, of the cgroup of a data directory's sandboxes."""
    return f"skillyard-{_key(data_dir)}"


def leaks(data_dir: Path) -> list[str]:
    """One line for each mount, cgroup, process, network namespace, link or firewall table of the
    sandboxes of this data directory. Call it when its engine has been closed."""
    return [
        *_mounts(data_dir),
        *_cgroups(data_dir),
        *_processes(data_dir),
        *_folders(data_dir),
        *_networks(data_dir),
    ]


def _key(data_dir: Path) -> str:
    return hashlib.sha256(os.fsencode(data_dir.absolute())).hexdigest()[:8]


def _network_dir(data_dir: Path) -> Path:
    return Path(f"/run/skillyard/network-{_key(data_dir)}")


def _mounts(data_dir: Path) -> Iterator[str]:
    places = (f"{data_dir}/", f"{_network_dir(data_dir)}/")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = line.split()[4]
        if point.startswith(places):
            yield f"mount {point}"


def _hierarchies() -> Iterator[Path]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, right = line.split(" - ")
        if right.split()[0] in ("cgroup", "cgroup2"):
            yield Path(left.split()[4])


def _cgroups(data_dir: Path) -> Iterator[str]:
    for root in _hierarchies():
        if (root / parent_cgroup(data_dir)).exists():
            yield f"cgroup {root / parent_cgroup(data_dir)}"


def _processes(data_dir: Path) -> Iterator[str]:
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            groups = (folder / "cgroup").read_text()
            stat = (folder / "stat").read_text()
        except OSError:
            continue
        if stat[stat.rindex(")") + 2] == "Z":
            # Dead, and waiting for the host's own init to notice.
            continue
        if parent_cgroup(data_dir) in groups or (f"{data_dir}/" in command and "runc" in command):
            yield f"process {folder.name}: {command}"


def _folders(data_dir: Path) -> Iterator[str]:
    for name in ("sandboxes", "trash", "runc"):
        folder = data_dir / name
        if folder.exists():
            yield from (f"folder {path}" for path in folder.iterdir())


def _networks(data_dir: Path) -> Iterator[str]:
    # As the network names what it makes: after the directory of its records.
    tag = hashlib.sha256(os.fsencode(_network_dir(data_dir))).hexdigest()[:6]
    for link in Path("/sys/class/net").iterdir():
        if tag in link.name:
            yield f"link {link.name}"
    if shutil.which("nft"):
        tables = subprocess.run(["nft", "list", "tables"], capture_output=True, check=True)
        yield from (line for line in tables.stdout.decode().splitlines() if tag in line)
