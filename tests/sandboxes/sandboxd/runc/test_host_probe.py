"""A host that can't run sandboxes is told everything that is missing, in one answer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandboxes.errors import Unsupported
from sandboxes.sandboxd.engines.runc import host
from sandboxes.sandboxd.engines.runc.cgroups import Cgroups


def test_everything_missing_is_named_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(host.shutil, "which", lambda name: None)
    monkeypatch.setattr(host.platform, "release", lambda: "5.10.0-8-amd64")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(Unsupported) as caught:
        host.check(closed / "with:colon")
    text = str(caught.value)
    for part in ("apt-get install", "runc", "catatonit", "5.14", "root", "colon", "chmod o+x"):
        assert part in text


def test_long_data_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="120 characters"):
        host.check(Path("/" + "x" * 130))


def _mountinfo(monkeypatch: pytest.MonkeyPatch, text: str, files: dict[str, str]) -> None:
    def read(path: Path, *args: object) -> str:
        if str(path) == "/proc/self/mountinfo":
            return text
        return files[str(path)]

    monkeypatch.setattr(Path, "read_text", read)
    monkeypatch.setattr(os, "access", lambda *args: True)


def test_pure_v2_host(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
    controllers = {"/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n"}
    _mountinfo(monkeypatch, line, controllers)
    cgroups = Cgroups.probe("skillyard-x")
    assert cgroups.of("s").v1_tasks() == []
    assert cgroups.of("s").unified == Path("/sys/fs/cgroup/skillyard-x/s")


def test_hybrid_host(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (
        "1 0 0:1 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
        "2 0 0:2 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "3 0 0:3 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "4 0 0:4 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
    )
    _mountinfo(monkeypatch, lines, {"/sys/fs/cgroup/unified/cgroup.controllers": ""})
    cgroups = Cgroups.probe("skillyard-x")
    assert cgroups.controller("cpuacct") == Path("/sys/fs/cgroup/cpu,cpuacct")
    assert "/sys/fs/cgroup/memory/skillyard-x/s/tasks" in cgroups.of("s").v1_tasks()


def test_missing_hierarchy_or_controller_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _mountinfo(monkeypatch, "1 0 0:1 / /x rw - cgroup cgroup rw,memory\n", {})
    with pytest.raises(Unsupported, match="cgroup2"):
        Cgroups.probe("skillyard-x")
    line = "1 0 0:1 / /u rw - cgroup2 cgroup2 rw\n"
    _mountinfo(monkeypatch, line, {"/u/cgroup.controllers": "pids\n"})
    with pytest.raises(Unsupported, match="memory, cpu"):
        Cgroups.probe("skillyard-x")
