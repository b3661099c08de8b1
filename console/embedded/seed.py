"""The rows that a fresh installation starts with, and the first login."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from django.db import transaction

from console.fleet.models import Backend
from console.fleet.services import create_backend, create_space
from console.tenants.models import Membership, Role, Tenant, User
from skills.ports import SYSTEM

__all__ = ["FirstLogin", "seed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLogin:
    username: str
    password: str


def seed(*, login_file: Path) -> FirstLogin | None:
    """One tenant, one space on the backend of this machine, one admin; only into an empty database.

    The admin's password is random and kept in `login_file` (0600) until it is changed. Returns the
    login while that password still holds, else None. Idempotent.
    """
    if not User.objects.exists():
        login = FirstLogin(username="admin", password=secrets.token_urlsafe(12))
        _write_private(login_file, json.dumps(asdict(login)))
        _seed_rows(login)
        return login
    try:
        login = FirstLogin(**json.loads(login_file.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    user = User.objects.filter(username=login.username).first()
    if user is not None and user.is_active and user.check_password(login.password):
        return login
    login_file.unlink()
    return None


@transaction.atomic
def _seed_rows(login: FirstLogin) -> None:
    tenant, _ = Tenant.objects.get_or_create(slug="default", defaults={"name": "Default"})
    backend = Backend.objects.filter(tenant=tenant).first() or create_backend(
        tenant=tenant, name="This machine", provider="local", values={}, actor=SYSTEM
    )
    if not tenant.spaces.exists():
        create_space(tenant=tenant, name="First space", slug="first", backend=backend, actor=SYSTEM)
    admin = User.objects.create_superuser(username=login.username, password=login.password)
    Membership.objects.create(user=admin, tenant=tenant, role=Role.ADMIN)


def _write_private(path: Path, text: str) -> None:
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as output:
        output.write(text)
    draft.rename(path)
