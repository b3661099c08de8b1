"""A machine is made ready by name, only where something is missing, and never without saying so."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def bootstrap(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    path = Path(__file__).resolve().parents[3] / "scripts/bootstrap.py"
    spec = importlib.util.spec_from_file_location("bootstrap", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bootstrap", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def ran(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    commands: list[list[str]] = []
    monkeypatch.setattr(
        bootstrap, "run", lambda command, env=None: commands.append([str(c) for c in command])
    )
    return commands


def test_what_is_there_is_not_asked_for(bootstrap: ModuleType, ran: list[list[str]]) -> None:
    bootstrap.install_system_packages([])
    assert ran == []


def test_root_installs_what_is_missing_by_name_and_says_why(
    bootstrap: ModuleType,
    ran: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("ASSUME_YES", "1")
    monkeypatch.setattr("shutil.which", lambda name, path=None: f"/usr/bin/{name}")
    bootstrap.install_system_packages(list(bootstrap.RUN[:2]))
    assert ran[0][:2] == ["apt-get", "update"]
    assert ran[1][:2] == ["apt-get", "install"]
    assert ran[1][-2:] == ["runc", "catatonit"]
    assert "runs the sandboxes" in capsys.readouterr().out


def test_without_root_the_exact_line_is_given(
    bootstrap: ModuleType, ran: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("shutil.which", lambda name, path=None: f"/usr/bin/{name}")
    monkeypatch.setattr(bootstrap, "is_there", lambda package: False)
    with pytest.raises(
        bootstrap.Refused, match=r"sudo apt-get install --no-install-recommends runc catatonit$"
    ):
        bootstrap.install_system_packages(list(bootstrap.RUN[:2]))
    assert ran == []


def test_a_no_installs_nothing(
    bootstrap: ModuleType, ran: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name, path=None: f"/usr/bin/{name}")
    monkeypatch.setattr(bootstrap, "agreed", lambda line: False)
    with pytest.raises(bootstrap.Refused, match="Nothing was installed"):
        bootstrap.install_system_packages(list(bootstrap.RUN[:1]))
    assert ran == []


def test_an_unchanged_lock_installs_nothing(
    bootstrap: ModuleType,
    ran: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(bootstrap, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(bootstrap, "STAMP", tmp_path / ".venv/installed.sha256")
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    (tmp_path / ".venv").mkdir()
    bootstrap.install_environment(sys.executable)
    first = len(ran)
    bootstrap.install_environment(sys.executable)
    assert first == len(ran)
    assert [command[1] for command in ran if command[0].endswith("/uv")] == ["pip"]


def test_too_old_a_python_is_named(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "version", lambda python: (3, 10))
    with pytest.raises(bootstrap.Refused, match=r"needs Python 3\.11 or newer"):
        bootstrap.find_python()


def test_it_needs_nothing_but_the_standard_library() -> None:
    path = Path(__file__).resolve().parents[3] / "scripts/bootstrap.py"
    done = subprocess.run(
        ["/usr/bin/python3", "-S", "-I", path, "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
