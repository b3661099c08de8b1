"""Tenants, spaces and the people in them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.core.validators import RegexValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from console.tenants.account_models import TotpDevice
from sandboxes.errors import Conflict
from skills.ids import ID_LENGTH, new_id

if TYPE_CHECKING:
    from console.fleet.models import Backend
    from skills.models import Release

slug_validator = RegexValidator(
    r"\A[a-z0-9](?:[a-z0-9-]{0,48}[a-z0-9])?\Z",
    _("Use 1 to 50 lower-case letters, digits and inner hyphens."),
)


class User(AbstractUser):
    """A person. What they may do is in their memberships; `is_superuser` is the platform's admin."""

    language = models.CharField(max_length=10, choices=settings.LANGUAGES, blank=True)
    theme = models.CharField(
        max_length=5,
        choices=[("auto", _("As the system")), ("light", _("Light")), ("dark", _("Dark"))],
        default="auto",
    )
    time_zone = models.CharField(max_length=64, blank=True)
    """A name of the IANA database; blank is whatever the browser says."""
    hides_first_steps = models.BooleanField(default=False)
    """They closed the list of first steps on the overview."""

    def has_two_step(self) -> bool:
        """Whether their password alone does not sign them in."""
        return TotpDevice.objects.filter(user=self, confirmed=True).exists()


class Tenant(models.Model):
    """An isolated organisation."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH, default=partial(new_id, "tnt"))
    slug = models.CharField(max_length=50, unique=True, validators=[slug_validator])
    name = models.CharField(max_length=100)
    two_step_required = models.BooleanField(default=False)
    """Members without two-step sign-in may do nothing but set it up."""
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    ADMIN = "admin", _("Tenant admin")
    OWNER = "owner", _("Space owner")
    OPERATOR = "operator", _("Operator")
    VIEWER = "viewer", _("Viewer")
    AUDITOR = "auditor", _("Auditor")


class Rollout(models.TextChoices):
    """When sessions that are already running move to a new release or policy."""

    NEXT_TURN = "next_turn", _("At their next turn")
    NEW_SESSION = "new_session", _("Never; new sessions only")


class SpaceGoing(Conflict):
    """The space is being deleted, so nothing new happens in it."""

    retryable = False


class Space(models.Model):
    """A workspace: one backend and base template, a skill set, a current release, a policy."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH, default=partial(new_id, "spc"))
    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="spaces")
    slug = models.CharField(max_length=50, validators=[slug_validator])
    name = models.CharField(max_length=100)
    description = models.CharField(max_length=500, blank=True)
    backend: models.ForeignKey[Backend, Backend] = models.ForeignKey(
        "fleet.Backend", models.PROTECT, related_name="spaces"
    )
    base_template = models.CharField(max_length=200, default="base")
    current_release: models.ForeignKey[Release | None, Release | None] = models.ForeignKey(
        "skills.Release", models.SET_NULL, null=True, blank=True, related_name="+"
    )
    candidate_release: models.ForeignKey[Release | None, Release | None] = models.ForeignKey(
        "skills.Release", models.SET_NULL, null=True, blank=True, related_name="+"
    )
    """Served to `rollout_percent` of new sessions and to `rollout_sessions` (`skills.rollout`)."""
    rollout_percent = models.PositiveSmallIntegerField(default=0)
    rollout_sessions: models.JSONField[Any, Any] = models.JSONField(default=list, blank=True)
    rollout = models.CharField(max_length=12, choices=Rollout, default=Rollout.NEXT_TURN)
    idle_timeout_s = models.PositiveIntegerField(default=1800)
    env = models.JSONField(default=dict, blank=True)
    """Environment of every session, never secret."""
    created_at = models.DateTimeField(auto_now_add=True)
    delete_requested_at = models.DateTimeField(null=True, blank=True)
    """It is being deleted (`console.fleet.removal`): seen still, and good for nothing."""
    delete_requested_by = models.CharField(max_length=200, blank=True)
    delete_leaves_snapshots = models.BooleanField(default=False)
    """Snapshots in a provider account that its backend does not use any more stay there."""
    delete_problem = models.CharField(max_length=500, blank=True)
    """What its deletion waits for; empty while it goes on."""

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "slug"], name="space_slug_unique_in_tenant")
        ]

    def __str__(self) -> str:
        return self.name

    def require_kept(self) -> None:
        """Conflict if it is being deleted."""
        if self.delete_requested_at is not None:
            raise SpaceGoing(f"The space “{self.name}” is being deleted; use another one.")


class Membership(models.Model):
    """One person's role in a tenant (`space` null) or in one of its spaces."""

    user = models.ForeignKey(User, models.CASCADE, related_name="memberships")
    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="memberships")
    space = models.ForeignKey(
        Space, models.CASCADE, null=True, blank=True, related_name="memberships"
    )
    role = models.CharField(max_length=8, choices=Role)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["user", "space"],
                condition=models.Q(space__isnull=False),
                name="one_role_per_space",
            ),
            models.UniqueConstraint(
                fields=["user", "tenant"],
                condition=models.Q(space__isnull=True),
                name="one_role_per_tenant",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user}: {self.role}"


class ApiKey(models.Model):
    """A credential of a program. The secret is shown once and stored as a hash only."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH, default=partial(new_id, "key"))
    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="api_keys")
    space = models.ForeignKey(Space, models.CASCADE, null=True, blank=True, related_name="api_keys")
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=24, unique=True)
    """The part of the key that may be shown, and by which it is looked up."""
    secret_sha256 = models.CharField(max_length=64)
    scopes: models.JSONField[Any, Any] = models.JSONField(default=list)
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"
