"""The append-only record of who did what."""

from __future__ import annotations

import json
from datetime import UTC
from functools import partial

from django.conf import settings
from django.db import models
from django.utils import timezone

from skills.ids import ID_LENGTH, new_id


class Outcome(models.TextChoices):
    DONE = "done"
    DENIED = "denied"
    FAILED = "failed"


class AuditChain(models.Model):
    """The end of one tenant's chain of entries, or of the platform's own (key ""). Its row lock puts
    concurrent writers in order."""

    key = models.CharField(primary_key=True, max_length=ID_LENGTH)
    head = models.CharField(max_length=64, blank=True)
    length = models.PositiveBigIntegerField(default=0)
    verified_at = models.DateTimeField(null=True)
    """When all of it was last computed anew."""
    broken = models.PositiveBigIntegerField(default=0)
    """The number of the first entry that did not fit then, or 0."""

    def __str__(self) -> str:
        return self.key or "platform"


class AuditEntry(models.Model):
    """Written by `audit.services.record` only; never changed, never deleted by the product.

    `hash` covers the entry and the hash before it, so that a change, a gap or a swap shows.
    """

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
    created_at = models.DateTimeField(default=timezone.now)
    chain = models.ForeignKey(AuditChain, models.PROTECT, null=True, related_name="entries")
    number = models.PositiveBigIntegerField(default=0)
    """1, 2, 3 … in its chain."""
    hash = models.CharField(max_length=64, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["tenant", "-id"])]
        constraints = [
            models.UniqueConstraint(fields=["chain", "number"], name="audit_number_unique")
        ]

    def __str__(self) -> str:
        return f"{self.actor} {self.action} {self.target}"

    def content(self) -> str:
        """What the hash covers, canonically. References count as the ids they had: a row that is set
        to null later is not covered, its text is."""
        return json.dumps(
            [
                self.id,
                self.number,
                self.tenant_id,
                self.actor,
                self.action,
                self.target,
                self.outcome,
                self.details,
                self.address,
                self.request_id,
                self.created_at.astimezone(UTC).isoformat(),
            ],
            sort_keys=True,
            separators=(",", ":"),
        )
