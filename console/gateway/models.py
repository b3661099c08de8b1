"""What the gateway has to remember between requests, for any process to serve the next one."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from django.db import models

from console.crypto import EncryptedJSONField


class GatewaySandbox(models.Model):
    """Where the data plane of a sandbox is. Requests there name the sandbox and nothing else.

    The provider's tags say whose it is; this row repeats it, so that a provider that hands out the
    id of another tenant's sandbox is found out.
    """

    sandbox_id = models.CharField(primary_key=True, max_length=100)
    space = models.ForeignKey("tenants.Space", models.CASCADE, related_name="+")
    backend = models.ForeignKey("fleet.Backend", models.CASCADE, related_name="+")
    domain = models.CharField(max_length=253, blank=True)
    """Under which the backend serves its ports, where it said so."""
    secrets = EncryptedJSONField(default=dict)
    """`access`: the sandbox's own token, by which a signed file URL without an address is placed too.
    `traffic`: what opens its ports while inbound is closed, which some backends tell but once.
    `guarded`: the backend's envd asks for no token, so `access` is ours and the gateway asks for both."""
    request_key = models.CharField(max_length=64, blank=True)
    """Hex SHA-256 of the space and the Idempotency-Key that it was made with."""
    request_digest = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["request_key"],
                condition=~models.Q(request_key=""),
                name="gateway_request_once",
            )
        ]
        indexes = [models.Index(fields=["space", "-created_at"])]

    def __str__(self) -> str:
        return self.sandbox_id

    @property
    def access_token(self) -> str:
        return str(self.secrets.get("access") or "")

    @property
    def traffic_token(self) -> str | None:
        return self.secrets.get("traffic") or None

    @property
    def guarded(self) -> bool:
        return bool(self.secrets.get("guarded"))

    def secrets_by(self, answer: Mapping[str, Any], *, told_all: bool = True) -> dict[str, Any]:
        """The secrets after this answer of the backend; what it did not tell stays as it is. Create, connect and
        resume tell the access token if there is one (`told_all`); a detail may leave it out."""
        told = answer.get("envdAccessToken")
        found = {"access": told or self.access_token, "guarded": self.guarded and not told}
        if not found["access"] and told_all:
            found = {"access": secrets.token_hex(20), "guarded": True}
        if traffic := answer.get("trafficAccessToken") or self.traffic_token:
            found["traffic"] = traffic
        return found

    def opened(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """The backend's answer with the tokens that its client needs, where it leaves them out."""
        kept = {"envdAccessToken": self.access_token, "trafficAccessToken": self.traffic_token}
        return {**{name: token for name, token in kept.items() if token}, **answer}


class GatewaySnapshot(models.Model):
    """A snapshot that a client made: it belongs to its space, and is listed and used there only."""

    space = models.ForeignKey("tenants.Space", models.CASCADE, related_name="+")
    backend = models.ForeignKey("fleet.Backend", models.CASCADE, related_name="+")
    snapshot_id = models.CharField(max_length=200)
    name = models.CharField(max_length=200, blank=True)
    source_sandbox_id = models.CharField(max_length=100)
    size_bytes = models.PositiveBigIntegerField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["backend", "snapshot_id"], name="gateway_snapshot_unique"
            )
        ]

    def __str__(self) -> str:
        return self.snapshot_id
