"""Two-step sign-in: a code of an app after the password, and recovery codes for when the app is lost.

A person's sessions are made only after the second step, so every session of somebody who has it is a
whole one: nothing else has to ask.
"""

from __future__ import annotations

import hashlib
import math
import re
import secrets
from base64 import b32encode
from urllib.parse import quote, urlencode

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.audit.models import Outcome
from console.audit.services import Actor
from console.tenants.account_models import RecoveryCode, TotpDevice
from console.tenants.accounts import record_account
from console.tenants.models import User
from sandboxes.errors import Conflict, InvalidRequest

__all__ = [
    "RECOVERY_CODES",
    "CodeRefused",
    "check_code",
    "confirm",
    "device_of",
    "enrolment_url",
    "make_recovery_codes",
    "remove",
    "start",
]

RECOVERY_CODES = 10
_SECRET_BYTES = 20
_RECOVERY_BYTES = 10


class CodeRefused(InvalidRequest):
    """The code is wrong, or it is too soon for another try (then `retry_after_s` says how long)."""


def device_of(user: User) -> TotpDevice | None:
    """Confirmed or not yet."""
    return TotpDevice.objects.filter(user=user).first()


@transaction.atomic
def start(*, user: User) -> TotpDevice:
    """A new secret, that counts once a code of it was confirmed. Conflict if two-step sign-in is on."""
    if user.has_two_step():
        raise Conflict(_("Two-step sign-in is on already; turn it off to set it up anew."))
    TotpDevice.objects.filter(user=user).delete()
    return TotpDevice.objects.create(
        user=user, name="app", confirmed=False, secret=secrets.token_hex(_SECRET_BYTES)
    )


def enrolment_url(device: TotpDevice, *, host: str) -> str:
    """What the QR code says, in the format that authenticator apps share. `host` tells this installation
    from others in the app's list."""
    label = quote(f"Skillyard:{device.user.get_username()}@{host}")
    secret = b32encode(device.key).decode().rstrip("=")
    return f"otpauth://totp/{label}?{urlencode({'secret': secret, 'issuer': 'Skillyard'})}"


def confirm(*, user: User, code: str, actor: Actor) -> list[str]:
    """Turn it on by the first code; the recovery codes, which can't be had again. CodeRefused if the code is
    not right, Conflict if nothing was started."""
    with transaction.atomic():
        device = TotpDevice.objects.select_for_update().filter(user=user, confirmed=False).first()
        if device is None:
            raise Conflict(
                _("Start setting it up first; what you saw before is worth nothing now.")
            )
        refusal = _verify(device, _plain(code))
        if refusal is None:
            device.confirmed = True
            device.save(update_fields=["confirmed"])
            record_account(actor=actor, user=user, action="two_step.enrol")
            return _renew_codes(user)
    raise refusal


def check_code(*, user: User, code: str, actor: Actor) -> None:
    """Take a code of the app, or a recovery code, once. CodeRefused says why not; audited either way but
    for the common one: a right code of the app."""
    plain = _plain(code)
    with transaction.atomic():
        device = TotpDevice.objects.select_for_update().filter(user=user, confirmed=True).first()
        if device is None:
            raise Conflict(_("Two-step sign-in is off."))
        if plain.isdigit() and len(plain) <= 8:
            refusal = _verify(device, plain)
        else:
            refusal = _take_recovery_code(user, plain, actor)
        if refusal is not None and refusal.retry_after_s is None:
            record_account(actor=actor, user=user, action="two_step.code", outcome=Outcome.FAILED)
    if refusal is not None:
        raise refusal


@transaction.atomic
def make_recovery_codes(*, user: User, actor: Actor) -> list[str]:
    """New ones; all before them are worth nothing any more."""
    if not user.has_two_step():
        raise Conflict(_("Two-step sign-in is off."))
    record_account(actor=actor, user=user, action="two_step.new_codes")
    return _renew_codes(user)


@transaction.atomic
def remove(*, user: User, actor: Actor, action: str = "two_step.remove") -> bool:
    """Off, with its recovery codes. False if it was off already; what was only started is forgotten."""
    was_on = user.has_two_step()
    TotpDevice.objects.filter(user=user).delete()
    RecoveryCode.objects.filter(user=user).delete()
    if was_on:
        record_account(actor=actor, user=user, action=action)
    return was_on


def _verify(device: TotpDevice, code: str) -> CodeRefused | None:
    allowed, why = device.verify_is_allowed()
    if not allowed:
        wait_s = max(1, math.ceil((why["locked_until"] - timezone.now()).total_seconds()))
        words = ngettext(
            "Wait %(count)d second before the next try.",
            "Wait %(count)d seconds before the next try.",
            wait_s,
        )
        return CodeRefused(words % {"count": wait_s}, retry_after_s=wait_s)
    if device.verify_token(code):
        return None
    return CodeRefused(
        _(
            "That code is not right. Each code holds for half a minute and only once: type the one that the "
            "app shows now, and check that the phone's clock is right."
        )
    )


def _take_recovery_code(user: User, code: str, actor: Actor) -> CodeRefused | None:
    unused = RecoveryCode.objects.filter(user=user, used_at=None)
    if not unused.filter(code_sha256=_digest(code)).update(used_at=timezone.now()):
        return CodeRefused(_("That recovery code is not right, or it was used before."))
    left = unused.count()
    record_account(actor=actor, user=user, action="two_step.recovery", details={"left": left})
    return None


def _renew_codes(user: User) -> list[str]:
    codes = [
        b32encode(secrets.token_bytes(_RECOVERY_BYTES)).decode().lower()
        for _number in range(RECOVERY_CODES)
    ]
    RecoveryCode.objects.filter(user=user).delete()
    RecoveryCode.objects.bulk_create(
        RecoveryCode(user=user, code_sha256=_digest(code)) for code in codes
    )
    return ["-".join(re.findall("....", code)) for code in codes]


def _plain(code: str) -> str:
    """As people type it: spaces, hyphens and capitals don't matter."""
    return re.sub(r"[\s-]", "", code)[:40].lower()


def _digest(code: str) -> str:
    """Fast on purpose: a code has 80 random bits, as many as nobody tries."""
    return hashlib.sha256(code.encode()).hexdigest()
