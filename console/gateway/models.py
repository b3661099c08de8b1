"""What the gateway has to remember between requests, for any process to serve the next one."""

from __future__ import annotations

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
    """`access`: the sandbox's own token, by which a signed file URL without an address is placed."""
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
