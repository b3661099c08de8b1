"""A provider account that a backend has left."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.db import models

from console.crypto import EncryptedJSONField
from sandboxes import registry
from sandboxes.client import SandboxClient
from skills.ids import ID_LENGTH, new_id

__all__ = ["FormerAccount"]


class FormerAccount(models.Model):
    """Its credentials are kept, encrypted, until what is ours there is gone, then erased; the row stays."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH, default=partial(new_id, "fac"))
    backend = models.ForeignKey("fleet.Backend", models.CASCADE, related_name="former_accounts")
    provider = models.CharField(max_length=20)
    settings: models.JSONField[Any, Any] = models.JSONField(default=dict)
    secrets = EncryptedJSONField(default=dict)
    fingerprint = models.CharField(max_length=64)
    sandbox_ids: models.JSONField[Any, Any] = models.JSONField(default=list)
    """Known to be left there when it was left, beside what our tags find."""
    problem = models.CharField(max_length=500, blank=True)
    """Why the last try at cleaning up came to no end; once finished, how."""
    left_at = models.DateTimeField(auto_now_add=True)
    looked_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["backend", "fingerprint"], name="former_account_unique")
        ]

    def __str__(self) -> str:
        return self.pk

    async def open_client(self) -> SandboxClient:
        """A client with the old credentials, to be closed by the caller; raises `sandboxes.errors`."""
        return await registry.open_client(self.provider, {**self.settings, **self.secrets})
