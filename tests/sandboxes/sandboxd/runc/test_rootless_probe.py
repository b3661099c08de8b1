"""An account that can't run sandboxes is told everything that is missing, in one answer."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sandboxes.errors import Unsupported
from sandboxes.sandboxd.engines.runc import host
from sandboxes.sandboxd.engines.runc.rootless import checks, holder


@pytest.fixture(autouse=True)
def _plain_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    monkeypatch.setattr(checks.getpass, "getuser", lambda: "ann")
    monkeypatch.setenv("PATH", os.environ["PATH"])


def _files(monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> None:
    real_text, real_exists = Path.read_text, Path.exists

    def read(path: Path) -> str:
        return files[str(path)] if str(path) in files else real_text(path)

    monkeypatch.setattr(Path, "read_text", read)
    monkeypatch.setattr(Path, "exists", lambda path: str(path) in files or real_exists(path))


def _namespaces(monkeypatch: pytest.MonkeyPatch, *, code: int) -> None:
    done = subprocess.CompletedProcess([], code, "", "unshare failed: Operation not permitted")
    monkeypatch.setattr(checks.subprocess, "run", lambda *_, **__: done)


def test_everything_missing_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = ("newuidmap", "newgidmap", "runc")
    monkeypatch.setattr(
        checks.shutil, "which", lambda name: None if name in absent else f"/bin/{name}"
    )
    monkeypatch.setattr(host.platform, "release", lambda: "5.10.0-8-amd64")
    _files(
        monkeypatch,
        {
            "/etc/subuid": "",
            "/etc/subgid": "",
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n",
        },
    )
    _namespaces(monkeypatch, code=1)
    with pytest.raises(Unsupported) as caught:
        checks.check(Path("/home/ann/with:colon"))
    text = str(caught.value)
    assert "apt-get install runc uidmap`" in text
    assert "usermod --add-subuids 165536-231071 --add-subgids 165536-231071 ann" in text
    assert "sysctl kernel.apparmor_restrict_unprivileged_userns=0" in text
    assert "5.14" in text
    assert "colon" in text


def test_a_range_past_everybody_is_proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    _files(
        monkeypatch,
        {"/etc/subuid": "bob:200000:65536\nann:300000:1000\n", "/etc/subgid": "bob:400000:65536\n"},
    )
    _namespaces(monkeypatch, code=0)
    with pytest.raises(Unsupported, match="465536-531071"):
        checks.check(Path("/home/ann/data"))


def test_unknown_reasons_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    _files(monkeypatch, {"/etc/subuid": "4321:300000:65536\n", "/etc/subgid": "ann:300000:65536\n"})
    _namespaces(monkeypatch, code=1)
    with pytest.raises(Unsupported, match="Operation not permitted"):
        checks.check(Path("/home/ann/data"))
    assert checks.ranges() == checks.Ranges(300000, 300000)


def test_closed_home_is_no_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _files(monkeypatch, {"/etc/subuid": "ann:300000:65536\n", "/etc/subgid": "ann:300000:65536\n"})
    _namespaces(monkeypatch, code=0)
    monkeypatch.setattr(checks.shutil, "which", lambda name: f"/bin/{name}")
    home = tmp_path / "ann"
    home.mkdir(mode=0o700)
    checks.check(home / "data")


def test_root_is_never_taken_for_a_holder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "holder.json"
    file.write_text('{"pid": 1, "start": 1, "boot_id": "x"}')
    monkeypatch.setenv("SKILLYARD_SANDBOXD_HOLDER", str(file))
    assert holder.current() is None
