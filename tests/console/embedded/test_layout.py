"""The data directory is made once, with private secrets that never change by themselves."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from console.embedded.accounts import Account
from console.embedded.layout import Layout

ME = Account(name="me", uid=os.geteuid(), gid=os.getegid())


def test_secrets_are_private_and_lasting(tmp_path: Path) -> None:
    layout = Layout.of(tmp_path / "data")
    layout.prepare(ME)
    secrets = {p.name: p.read_text() for p in layout.console.iterdir() if p.is_file()}
    layout.prepare(ME)
    assert secrets == {p.name: p.read_text() for p in layout.console.iterdir() if p.is_file()}
    assert set(secrets) == {"secret_key", "field_keys"}
    assert len(secrets["secret_key"]) > 60
    Fernet(secrets["field_keys"])
    for path in (layout.console, layout.redis, layout.logs):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for name in secrets:
        assert stat.S_IMODE((layout.console / name).stat().st_mode) == 0o600


def test_the_operators_own_settings_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://elsewhere:6379/0")
    monkeypatch.setenv("SKILLYARD_SECRET_KEY", "mine")
    environ = Layout.of(tmp_path).environment()
    assert environ["REDIS_URL"] == "redis://elsewhere:6379/0"
    assert "SKILLYARD_SECRET_KEY_FILE" not in environ
    assert environ["SKILLYARD_FIELD_KEYS_FILE"] == str(tmp_path / "console/field_keys")


def test_sandboxd_socket_is_beside_other_data_or_in_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SKILLYARD_SANDBOXD_SOCKET", raising=False)
    assert Layout.of(tmp_path).socket == tmp_path / "run/sandboxd.sock"
    assert Layout.of(Path("/var/lib/skillyard")).socket == Path("/run/skillyard/sandboxd.sock")
    monkeypatch.setenv("SKILLYARD_SANDBOXD_SOCKET", "/somewhere/s.sock")
    assert Layout.of(tmp_path).socket == Path("/somewhere/s.sock")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has files of two owners")
def test_what_root_made_before_the_first_start_is_handed_over(tmp_path: Path) -> None:
    layout = Layout.of(tmp_path / "data")
    layout.console.mkdir(parents=True, mode=0o755)
    database = layout.console / "skillyard.sqlite3"
    database.touch()
    service = Account(name="service", uid=12345, gid=12345)
    layout.prepare(service)
    assert stat.S_IMODE(layout.console.stat().st_mode) == 0o700
    assert database.stat().st_uid == layout.console.stat().st_uid == service.uid
