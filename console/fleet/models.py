"""Backends, the sessions that run on them, and what was found when both were compared."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Case, F, OuterRef, Q, Subquery, Value, When
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from console.crypto import EncryptedJSONField
from console.fleet import reasons
from console.fleet.account_models import FormerAccount as FormerAccount
from console.policies.models import NetworkPolicyRevision
from sandboxes import registry
from sandboxes.client import SandboxClient
from sandboxes.errors import Conflict
from skills.ids import ID_LENGTH, new_id

if TYPE_CHECKING:
    from skills.models import Release


GATEWAY_ORIGIN = "gateway"
"""The first word of `Session.created_by` for a sandbox that a client of the gateway made."""


class BackendClosed(Conflict):
    """An admin keeps new sandboxes off the backend."""

    retryable = False


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
    cordoned_at = models.DateTimeField(null=True, blank=True)
    """Since then an admin keeps new sandboxes off it; null is open. What runs on it runs on."""
    cordon_reason = models.CharField(max_length=300, blank=True)
    cordoned_by = models.CharField(max_length=200, blank=True)
    checked_at = models.DateTimeField(null=True, blank=True)
    check_error = models.CharField(max_length=500, blank=True)
    check_took_ms = models.PositiveIntegerField(null=True, blank=True)
    """How long the last check's answer took; null if it had none."""
    capabilities: models.JSONField[Any, Any] = models.JSONField(default=dict)
    """As the last check found them: name to boolean, and `notes`."""
    hourly_cost = models.DecimalField(max_digits=10, decimal_places=4, null=True, blank=True)
    """What one sandbox costs an hour, in `currency`; for estimates only."""
    currency = models.CharField(max_length=3, blank=True)
    """ISO 4217; empty if nobody said."""
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
        return registry.account_fingerprint(self.provider, {**self.settings, **self.secrets})

    @property
    def changing(self) -> bool:
        """Its identity is being changed just now."""
        return self.cordoned_until is not None and self.cordoned_until > timezone.now()

    def require_open(self) -> None:
        """Conflict, with the mend, while no new sandbox may be made on it."""
        if self.changing:
            raise Conflict(
                f"The backend “{self.name}” is being changed, so it starts nothing new; try again in two "
                "minutes.",
                op="create",
                retry_after_s=120,
            )
        if self.cordoned_at is not None:
            reason = f" ({self.cordon_reason})" if self.cordon_reason else ""
            raise BackendClosed(
                f"The backend “{self.name}” is cordoned{reason}, so it starts nothing new; a tenant admin "
                "can open it again.",
                op="create",
            )

    @property
    def provider_label(self) -> str:
        """The kind of backend, for people."""
        return registry.provider(self.provider).label

    async def open_client(self) -> SandboxClient:
        """A client to be closed by the caller; raises `sandboxes.errors` if it can't be opened."""
        return await registry.open_client(self.provider, {**self.settings, **self.secrets})

    async def open_account(self, fingerprint: str) -> SandboxClient | None:
        """A client of one of its accounts: that of now, or one it has left whose credentials are still kept.
        None for any other; else as `open_client`."""
        if fingerprint == self.fingerprint:
            return await self.open_client()
        former = await self.former_accounts.filter(
            fingerprint=fingerprint, finished_at=None
        ).afirst()
        return None if former is None else await former.open_client()

    def reachable_accounts(self) -> set[str]:
        """The fingerprints that `open_account` has credentials for."""
        kept = self.former_accounts.filter(finished_at=None).values_list("fingerprint", flat=True)
        return {self.fingerprint, *kept}


class SessionState(models.TextChoices):
    ACTIVE = "active", _("Running")
    PAUSED = "paused", _("Paused")
    LOST = "lost", _("Lost")
    DESTROYED = "destroyed", _("Destroyed")


class SessionQuerySet(models.QuerySet["Session"]):
    def made_by_clients(self) -> SessionQuerySet:
        """Those whose sandbox an E2B client made for itself: it decides how long that lives."""
        return self.filter(created_by__startswith=f"{GATEWAY_ORIGIN},")

    def drifted(self, what: str) -> SessionQuerySet:
        """Those whose sandbox is of another `release` than new ones of their space start from, was made or
        updated under an older `policy`, `any` of the two, or `none`. Only of sessions with a sandbox.

        A client of the gateway chose its own image and policy. That the account of a backend changed is
        not seen here: fingerprints are of encrypted values.
        """
        newest = NetworkPolicyRevision.objects.filter(space=OuterRef("space")).order_by("-number")
        compared = self.alias(
            has=Coalesce("release_id", Value("")),
            serves=_startable("space__current_release"),
            tries=_startable("space__candidate_release", otherwise="none"),
            made_under=Coalesce("policy__number", Value(0)),
            newest_policy=Subquery(newest.values("number")[:1]),
        )
        ours = ~Q(created_by__startswith=f"{GATEWAY_ORIGIN},")
        other_release = ours & ~Q(has=F("serves")) & ~Q(has=F("tries"))
        older_policy = ours & Q(made_under__lt=F("newest_policy"))
        return compared.filter(
            {
                "release": other_release,
                "policy": older_policy,
                "any": other_release | older_policy,
                "none": ~(other_release | older_policy),
            }[what]
        )


def _startable(release: str, *, otherwise: str = "") -> Case:
    """The id of the release at this path of a session, if a sandbox can start from it."""
    return Case(
        When(
            Q(
                **{
                    f"{release}__state__in": ["active", "superseded"],
                    f"{release}__delete_requested_at": None,
                    f"{release}__backend": F("space__backend"),
                }
            ),
            then=F(f"{release}_id"),
        ),
        default=Value(otherwise),
    )


class Session(models.Model):
    """One conversation of the platform in one space. Redis says which sandbox it has; this row is
    what people see of it."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH, default=partial(new_id, "ses"))
    space = models.ForeignKey("tenants.Space", models.CASCADE, related_name="sessions")
    session_id = models.CharField(max_length=256)
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
    state_changed_at = models.DateTimeField(default=timezone.now)
    """When something last happened to its sandbox. A comparison that began earlier is outdated."""
    created_by = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    used_at = models.DateTimeField(auto_now_add=True)
    destroyed_at = models.DateTimeField(null=True, blank=True)

    objects = SessionQuerySet.as_manager()

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
    """created, claimed, rebuilt, resumed, paused, unbound, lost, destroyed, or seen (by the reconciler)."""
    reason = models.CharField(max_length=300, blank=True)
    """A code of `console.fleet.reasons`, or a sentence."""
    actor = models.CharField(max_length=200, blank=True)
    sandbox_id = models.CharField(max_length=100, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.kind} {self.session_id}"

    @property
    def what(self) -> str:
        """The event in the reader's language."""
        return reasons.kind(self.kind)

    @property
    def why(self) -> str:
        """The reason in the reader's language."""
        return reasons.sentence(self.reason)


class Attachment(models.Model):
    """A file that was staged for a session, remembered so that a new sandbox gets it again."""

    session = models.ForeignKey(Session, models.CASCADE, related_name="attachments")
    path = models.CharField(max_length=500)
    """Relative to /workspace/input."""
    digest = models.CharField(max_length=64)
    """Hex SHA-256 of the content, which lies in the console's storage under it."""
    size_bytes = models.BigIntegerField()
    created_by = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["path"]
        constraints = [
            models.UniqueConstraint(fields=["session", "path"], name="attachment_path_unique")
        ]

    def __str__(self) -> str:
        return self.path

    @property
    def stored_as(self) -> str:
        return f"attachments/{self.session_id}/{self.digest}"


class ReconcileReport(models.Model):
    """One comparison of a backend's sandboxes with the sessions and builds that need them."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH, default=partial(new_id, "rec"))
    backend = models.ForeignKey(Backend, models.CASCADE, related_name="reports")
    dry_run = models.BooleanField()
    by_hand = models.BooleanField(default=False)
    actor = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    seen = models.PositiveIntegerField(default=0)
    bound = models.PositiveIntegerField(default=0)
    building = models.PositiveIntegerField(default=0)
    paused = models.PositiveIntegerField(default=0)
    """Of the bound."""
    orphaned = models.PositiveIntegerField(default=0)
    claimable = models.PositiveIntegerField(default=0)
    stuck = models.PositiveIntegerField(default=0)
    unverifiable = models.PositiveIntegerField(default=0)
    drifted = models.PositiveIntegerField(default=0)
    deleted = models.PositiveIntegerField(default=0)
    corrected = models.PositiveIntegerField(default=0)
    """Session rows that did not say what the backend says."""
    findings: models.JSONField[Any, Any] = models.JSONField(default=list)
    """Rows of {kind, sandbox_id, state, age_s, session, session_row, space, build, reason, action, error,
    cost}; the most serious first, `findings_left_out` of them missing."""
    findings_left_out = models.PositiveIntegerField(default=0)
    aborted = models.CharField(max_length=500, blank=True)
    """Why nothing more was looked at or deleted; empty if the run was whole."""
    hourly_cost = models.DecimalField(max_digits=10, decimal_places=4, null=True)
    """The backend's, at that time."""
    oldest_orphan_s = models.PositiveIntegerField(null=True)
    """The age of the oldest orphan that is still there after the run; null is none."""

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["backend", "-id"])]

    def __str__(self) -> str:
        return self.pk

    @property
    def state(self) -> str:
        """queued, running, failed or done."""
        if self.finished_at is not None:
            return "failed" if self.aborted else "done"
        return "queued" if self.started_at is None else "running"

    @property
    def idle(self) -> int:
        """Sandboxes that nobody uses now."""
        return self.paused + self.orphaned + self.claimable - self.deleted

    @property
    def idle_cost_per_hour(self) -> Decimal | None:
        """An estimate; None where the backend has no `hourly_cost`."""
        return None if self.hourly_cost is None else self.hourly_cost * max(self.idle, 0)


class Sampling(models.Model):
    """A moment at which all sessions were counted. The moment is the key: of several beats, one counts."""

    at = models.DateTimeField(primary_key=True)

    class Meta:
        ordering = ["at"]

    def __str__(self) -> str:
        return self.at.isoformat()


class SessionSample(models.Model):
    """How many sessions a space had on a backend at that moment. Where there were none, there is no row."""

    sampling = models.ForeignKey(Sampling, models.CASCADE, related_name="samples")
    space = models.ForeignKey("tenants.Space", models.CASCADE, related_name="+")
    backend = models.ForeignKey(Backend, models.SET_NULL, null=True, related_name="+")
    """Null once it is deleted: what ran is still told."""
    active = models.PositiveIntegerField(default=0)
    paused = models.PositiveIntegerField(default=0)
    lost = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["sampling", "space", "backend"], name="sampled_once")
        ]

    def __str__(self) -> str:
        return f"{self.space_id} at {self.sampling_id}"


class VerificationState(models.TextChoices):
    QUEUED = "queued", _("Queued")
    RUNNING = "running", _("Running")
    PASSED = "passed", _("Passed")
    FAILED = "failed", _("Failed")


class Verification(models.Model):
    """One run of the eight points (`sandboxes.checklist`) against a backend, kept as it was found."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH, default=partial(new_id, "ver"))
    backend = models.ForeignKey(Backend, models.CASCADE, related_name="verifications")
    template = models.CharField(max_length=200)
    fingerprint = models.CharField(max_length=64)
    """Of the provider account that was tried."""
    state = models.CharField(
        max_length=8, choices=VerificationState, default=VerificationState.QUEUED
    )
    points: models.JSONField[Any, Any] = models.JSONField(default=list)
    """Rows of {number, name, title, outcome, evidence, reason, expected, took_s}, as they come."""
    problem = models.CharField(max_length=500, blank=True)
    """Why it could not be tried at all."""
    actor = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["backend", "-id"])]

    def __str__(self) -> str:
        return self.pk

    def previous(self) -> Verification | None:
        """The finished one before it, to compare with."""
        return (
            Verification.objects.filter(
                backend_id=self.backend_id, finished_at__isnull=False, pk__lt=self.pk
            )
            .exclude(points=[])
            .first()
        )

    @property
    def counts(self) -> dict[str, int]:
        """Points by outcome."""
        found = {"passed": 0, "failed": 0, "skipped": 0}
        for point in self.points:
            found[point["outcome"]] += 1
        return found
