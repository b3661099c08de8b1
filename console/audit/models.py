"""The append-only record of who did what."""

from __future__ import annotations

from functools import partial

from django.conf import settings
from django.db import models

from skills.ids import ID_LENGTH, new_id


class Outcome(models.TextChoices):
    DONE = "done"
    DENIED = "denied"
    FAILED = "failed"


class AuditEntry(models.Model):
    """Written by `audit.services.record` only; never changed, never deleted by the product."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH, default=partial(new_id, "aud"))
    tenant = models.ForeignKey("tenants.Tenant", models.PROTECT, null=True, related_name="+")
    space = models.ForeignKey("tenants.Space", models.SET_NULL, null=True, related_name="+")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    actor = models.CharField(max_length=200)
    """Who, as text that outlives the user or key."""
    action = models.CharField(max_length=64)
    """Noun and verb, such as `release.roll_back`."""
    target = models.CharField(max_length=200, blank=True)
    outcome = models.CharField(max_length=8, choices=Outcome, default=Outcome.DONE)
    details = models.JSONField(default=dict)
    """Before and after, without secrets."""
    address = models.GenericIPAddressField(null=True)
    request_id = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["tenant", "-id"])]

    def __str__(self) -> str:
        return f"{self.actor} {self.action} {self.target}"
