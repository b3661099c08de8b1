"""A fresh database gets one of everything and one login; any other is left alone."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from console.embedded.seed import seed
from console.fleet.models import Backend
from console.tenants.models import Membership, Role, Space, Tenant, User

pytestmark = pytest.mark.django_db


def test_a_fresh_database_is_ready_to_use(tmp_path: Path) -> None:
    login = seed(login_file=tmp_path / "login.json")

    assert login is not None
    admin = User.objects.get()
    assert admin.username == login.username == "admin"
    assert admin.check_password(login.password)
    assert len(login.password) >= 16
    space = Space.objects.get()
    assert space.backend == Backend.objects.get(provider="local")
    assert space.base_template == "base"
    assert Membership.objects.get().role == Role.ADMIN


def test_the_password_is_kept_private_and_shown_again(tmp_path: Path) -> None:
    path = tmp_path / "login.json"
    first = seed(login_file=path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert seed(login_file=path) == first
    assert User.objects.count() == Tenant.objects.count() == 1


def test_a_changed_password_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "login.json"
    seed(login_file=path)
    admin = User.objects.get()
    admin.set_password("something of my own")
    admin.save()

    assert seed(login_file=path) is None
    assert not path.exists()


def test_a_used_database_is_left_alone(tmp_path: Path) -> None:
    User.objects.create_user(username="mei", password="x" * 20)
    assert seed(login_file=tmp_path / "login.json") is None
    assert not Tenant.objects.exists()
    assert [user.username for user in User.objects.all()] == ["mei"]


def test_a_damaged_login_file_is_no_obstacle(tmp_path: Path) -> None:
    seed(login_file=tmp_path / "login.json")
    (tmp_path / "login.json").write_text(json.dumps(["?"]))
    assert seed(login_file=tmp_path / "login.json") is None
