"""How a person signs in: the browsers they are signed in with, and the second step."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import models
from django_otp.models import Device, ThrottlingMixin, TimestampMixin
from django_otp.oath import TOTP

from console.crypto import EncryptedJSONField
from skills.ids import ID_LENGTH, new_id

__all__ = ["RecoveryCode", "SignIn", "TotpDevice"]


class SignIn(models.Model):
    """One browser in which a person is signed in. It goes with its session, and the session with it."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH, default=partial(new_id, "sgn"))
    session = models.OneToOneField(Session, models.CASCADE, related_name="sign_in")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="sign_ins")
    address = models.GenericIPAddressField(null=True)
    user_agent = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField()
    last_used_at = models.DateTimeField()
    """To within a few minutes."""

    class Meta:
        ordering = ["-last_used_at"]

    def __str__(self) -> str:
        return f"{self.user} from {self.address}"


class TotpDevice(TimestampMixin, ThrottlingMixin, Device):  # type: ignore[misc]
    """The app that makes a person's codes (RFC 6238: SHA-1, six digits, 30 s), one for each person.

    django-otp's own model keeps the secret in plain text; here it is encrypted as every stored secret.
    Not `confirmed` until its first code was typed.
    """

    STEP_S: ClassVar[int] = 30
    TOLERANCE_STEPS: ClassVar[int] = 1
    MOST_FAILURES: ClassVar[int] = 9
    """From here on the wait no longer doubles: four minutes, so that whoever has the password can't shut
    its owner out for days."""

    throttling_failure_count: int
    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="totp_device"
    )
    secret = EncryptedJSONField()
    """In hex."""
    last_step = models.BigIntegerField(default=-1)
    """Of the last code that was taken: it and all before it are worth nothing any more."""

    objects: ClassVar[models.Manager[TotpDevice]] = models.Manager()

    @property
    def key(self) -> bytes:
        return bytes.fromhex(self.secret)

    def verify_token(self, token: str) -> bool:
        """Take a code, once. The row must be locked by the caller."""
        if not self.verify_is_allowed()[0]:
            return False
        totp = TOTP(self.key, self.STEP_S)
        right = (
            token.isascii()
            and token.isdigit()
            and len(token) == totp.digits
            and totp.verify(int(token), self.TOLERANCE_STEPS, self.last_step + 1)
        )
        if right:
            self.last_step = totp.t()
            self.set_last_used_timestamp(commit=False)
            self.throttle_reset(commit=False)
        else:
            self.throttle_increment(commit=False)
            self.throttling_failure_count = min(self.throttling_failure_count, self.MOST_FAILURES)
        self.save(
            update_fields=[
                "last_step",
                "last_used_at",
                "throttling_failure_count",
                "throttling_failure_timestamp",
            ]
        )
        return bool(right)

    def get_throttle_factor(self) -> int:
        return 1


class RecoveryCode(models.Model):
    """Signs in once in place of a code, when the app is lost. Shown once and stored as a hash only."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="recovery_codes"
    )
    code_sha256 = models.CharField(max_length=64)
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "code_sha256"], name="recovery_code_unique")
        ]

    def __str__(self) -> str:
        return f"{self.user}: {'used' if self.used_at else 'unused'}"
