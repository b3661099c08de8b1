"""Backends, and the sessions that run on them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from console.crypto import EncryptedJSONField
from sandboxes import registry
from sandboxes.client import SandboxClient
from sandboxes.fingerprint import fingerprint
from skills.ids import ID_LENGTH, new_id

if TYPE_CHECKING:
    from skills.models import Release


class Backend(models.Model):
    """A self-contained connection to one provider account. Secrets are write-only."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH, default=partial(new_id, "bkd"))
    tenant = models.ForeignKey("tenants.Tenant", models.PROTECT, related_name="backends")
    name = models.CharField(max_length=100)
    provider = models.CharField(max_length=20)
    settings: models.JSONField[Any, Any] = models.JSONField(default=dict)
    secrets = EncryptedJSONField(default=dict)
    cordoned_until = models.DateTimeField(null=True, blank=True)
    """No new sandbox is made on it until then: its identity is being changed."""
    checked_at = models.DateTimeField(null=True, blank=True)
    check_error = models.CharField(max_length=500, blank=True)
    capabilities: models.JSONField[Any, Any] = models.JSONField(default=dict)
    """As the last check found them: name to boolean, and `notes`."""
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name"], name="backend_name_unique_in_tenant")
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def fingerprint(self) -> str:
        """The provider account that its snapshots live in."""
        return fingerprint(
            provider=self.provider,
            api_key=self.secrets.get("api_key", ""),
            api_url=self.settings.get("api_url") or self.settings.get("socket", ""),
        )

    async def open_client(self) -> SandboxClient:
        """A client to be closed by the caller; raises `sandboxes.errors` if it can't be opened."""
        return await registry.open_client(self.provider, {**self.settings, **self.secrets})


class SessionState(models.TextChoices):
    ACTIVE = "active", _("Running")
    PAUSED = "paused", _("Paused")
    LOST = "lost", _("Lost")
    DESTROYED = "destroyed", _("Destroyed")


class Session(models.Model):
    """One conversation of the platform in one space. Redis says which sandbox it has; this row is
    what people see of it."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH, default=partial(new_id, "ses"))
    space = models.ForeignKey("tenants.Space", models.CASCADE, related_name="sessions")
    session_id = models.CharField(max_length=200)
    """The platform's own id."""
    state = models.CharField(max_length=10, choices=SessionState, default=SessionState.ACTIVE)
    backend = models.ForeignKey(Backend, models.PROTECT, related_name="sessions")
    sandbox_id = models.CharField(max_length=100, blank=True)
    release: models.ForeignKey[Release | None, Release | None] = models.ForeignKey(
        "skills.Release", models.SET_NULL, null=True, related_name="sessions"
    )
    policy = models.ForeignKey(
        "policies.NetworkPolicyRevision", models.SET_NULL, null=True, related_name="+"
    )
    created_by = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    used_at = models.DateTimeField(auto_now_add=True)
    destroyed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-used_at"]
        constraints = [
            models.UniqueConstraint(fields=["space", "session_id"], name="session_unique_in_space")
        ]
        indexes = [models.Index(fields=["space", "state", "-used_at"])]

    def __str__(self) -> str:
        return self.session_id


class SessionEvent(models.Model):
    """One line of a session's history."""

    session = models.ForeignKey(Session, models.CASCADE, related_name="events")
    kind = models.CharField(max_length=20)
    """created, connected, resumed, paused, rebuilt, claimed, unbound, destroyed, exec."""
    reason = models.CharField(max_length=300, blank=True)
    actor = models.CharField(max_length=200, blank=True)
    sandbox_id = models.CharField(max_length=100, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.kind} {self.session_id}"
