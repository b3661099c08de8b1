"""A space's network policy: append-only revisions, of which the last one holds."""

from __future__ import annotations

from functools import partial

from django.conf import settings
from django.db import models

from sandboxes.network import NetworkPolicy
from skills.ids import ID_LENGTH, new_id


class NetworkPolicyRevision(models.Model):
    """One saved policy. Number 1 is written with the space; a change adds the next number."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH, default=partial(new_id, "pol"))
    space = models.ForeignKey("tenants.Space", models.CASCADE, related_name="policy_revisions")
    number = models.PositiveIntegerField()
    outbound = models.BooleanField(default=True)
    inbound = models.BooleanField(default=False)
    allow = models.JSONField(default=list, blank=True)
    deny = models.JSONField(default=list, blank=True)
    reason = models.CharField(max_length=300, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-number"]
        constraints = [
            models.UniqueConstraint(fields=["space", "number"], name="policy_number_unique")
        ]

    def __str__(self) -> str:
        return f"policy {self.number} of {self.space_id}"

    def policy(self) -> NetworkPolicy:
        """The value that sandboxes are made with."""
        return NetworkPolicy.parse(
            outbound=self.outbound, inbound=self.inbound, allow=self.allow, deny=self.deny
        )
