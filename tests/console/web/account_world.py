"""People with passwords and second steps, and what they do at the sign-in page."""

from __future__ import annotations

import re
import time
from typing import Any

import time_machine
from django.test import Client
from django.urls import reverse
from django_otp.oath import TOTP

from console.audit.models import AuditEntry
from console.audit.services import SYSTEM
from console.tenants import two_step
from console.tenants.account_models import TotpDevice
from console.tenants.models import User

Clock = time_machine.Traveller
PASSWORD = "a long and odd phrase"


def give_password(user: User) -> User:
    user.set_password(PASSWORD)
    user.save()
    return user


def code_of(user: User, *, steps: int = 0) -> str:
    """What the person's app shows now, or `steps` half minutes later."""
    totp = TOTP(TotpDevice.objects.get(user=user).key)
    totp.time = time.time() + 30 * steps
    return f"{totp.token():06}"


def wrong_code(user: User) -> str:
    near = {code_of(user, steps=steps) for steps in range(-2, 3)}
    return next(
        code
        for code in ("000000", "111111", "222222", "333333", "444444", "555555")
        if code not in near
    )


def enrol(user: User) -> list[str]:
    """Turn two-step sign-in on, with a code of a minute ago, so that the present one is still good."""
    two_step.start(user=user)
    return two_step.confirm(user=user, code=code_of(user, steps=-1), actor=SYSTEM)


def give_in_password(client: Client, user: User, password: str = PASSWORD, **extra: Any) -> Any:
    form = {"username": user.get_username(), "password": password}
    return client.post(reverse("web:sign-in"), {**form, **extra})


def give_in_code(client: Client, code: str, *, recovery: bool = False) -> Any:
    return client.post(reverse("web:sign-in-code"), {"recovery_code" if recovery else "code": code})


def is_signed_in(client: Client) -> bool:
    return bool(client.get(reverse("web:profile")).status_code == 200)


def audited(action: str) -> list[AuditEntry]:
    return list(AuditEntry.objects.filter(action=action).order_by("number"))


def text_of(response: Any) -> str:
    return re.sub(r"\s+", " ", response.content.decode())
