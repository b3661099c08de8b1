"""The skill catalog, plans, builds and releases.

console's models are referred to by name only; what a build needs of a space comes through the
foreign key (`skills.ports` says what that is).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from skills.ids import ID_LENGTH, new_id

if TYPE_CHECKING:
    from skills.plan import Plan
    from skills.ports import BackendPort, SpacePort

SKILLS_ROOT = "/opt/weknora/tenant/skills"
"""Where a sandbox keeps the skills of its release: owned by root, not writable."""


class Skill(models.Model):
    """A catalog entry of a tenant."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH, default=partial(new_id, "skl"))
    tenant: models.ForeignKey[Any, Any] = models.ForeignKey(
        "tenants.Tenant", models.PROTECT, related_name="skills"
    )
    name = models.CharField(max_length=64)
    created_at = models.DateTimeField(auto_now_add=True)
    archived_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name"], name="skill_name_unique_in_tenant")
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def path(self) -> str:
        """Its folder in a sandbox."""
        return f"{SKILLS_ROOT}/{self.name}"

    @property
    def latest_version(self) -> SkillVersion | None:
        return self.versions.first()


class SkillVersion(models.Model):
    """One uploaded package: content-addressed by its digest, immutable."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH, default=partial(new_id, "skv"))
    skill = models.ForeignKey(Skill, models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    """1, 2, 3 … in order of upload."""
    label = models.CharField(max_length=64, blank=True)
    """The package's own version, if it states one."""
    digest = models.CharField(max_length=64)
    description = models.TextField()
    archive = models.FileField(max_length=200)
    """The package as a canonical tar, named by its digest."""
    size_bytes = models.PositiveBigIntegerField()
    file_count = models.PositiveIntegerField()
    inspection: models.JSONField[Any, Any] = models.JSONField(default=dict)
    """What the reader found: files, notes, verdicts and the safety report (`skills.inspect`)."""
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-number"]
        constraints = [
            models.UniqueConstraint(fields=["skill", "digest"], name="digest_unique_in_skill"),
            models.UniqueConstraint(fields=["skill", "number"], name="number_unique_in_skill"),
        ]

    def __str__(self) -> str:
        return f"{self.skill.name} #{self.number}"

    @property
    def current_plan(self) -> PlanRevision:
        """The last revision. Every version has one from its upload on."""
        return self.plans.latest("number")


class PlanRevision(models.Model):
    """One saved plan of a skill version. Number 1 was found by reading; people add the next."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH, default=partial(new_id, "pln"))
    version = models.ForeignKey(SkillVersion, models.CASCADE, related_name="plans")
    number = models.PositiveIntegerField()
    content: models.JSONField[Any, Any] = models.JSONField()
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-number"]
        constraints = [
            models.UniqueConstraint(fields=["version", "number"], name="plan_number_unique")
        ]

    def __str__(self) -> str:
        return f"plan {self.number} of {self.version_id}"

    def plan(self) -> Plan:
        from skills.plan import Plan

        return Plan.from_json(self.content)


class BuildState(models.TextChoices):
    QUEUED = "queued", _("Queued")
    RUNNING = "running", _("Running")
    SUCCEEDED = "succeeded", _("Succeeded")
    FAILED = "failed", _("Failed")
    CANCELLED = "cancelled", _("Cancelled")


class BuildStep(models.TextChoices):
    """The stages of a build, in order."""

    PREPARE = "prepare", _("Start a sandbox")
    UPLOAD = "upload", _("Upload the skills")
    INSTALL = "install", _("Install what they need")
    VERIFY = "verify", _("Verify as the session's user")
    CLEAN = "clean", _("Clean up")
    RECORD = "record", _("Record resolved versions")
    SNAPSHOT = "snapshot", _("Freeze the snapshot")
    SWITCH = "switch", _("Switch the space")


class BuildTrigger(models.TextChoices):
    CHANGE = "change", _("Skills changed")
    COMPACT = "compact", _("Compact")
    REBUILD = "rebuild", _("Rebuild")


class BuildQuerySet(models.QuerySet["Build"]):
    def unfinished(self) -> BuildQuerySet:
        return self.filter(state__in=[BuildState.QUEUED, BuildState.RUNNING])

    def stuck(self, *, silent_for: timedelta) -> BuildQuerySet:
        """Running ones whose worker has not been heard of for that long."""
        return self.filter(state=BuildState.RUNNING, heartbeat_at__lt=timezone.now() - silent_for)


class Build(models.Model):
    """One run that produces a release of a space."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH, default=partial(new_id, "bld"))
    space: models.ForeignKey[Any, SpacePort] = models.ForeignKey(
        "tenants.Space", models.CASCADE, related_name="builds"
    )
    trigger = models.CharField(max_length=8, choices=BuildTrigger, default=BuildTrigger.CHANGE)
    from_base = models.BooleanField(default=False)
    """Start from the base template instead of the current release."""
    note = models.CharField(max_length=300, blank=True)
    changes: models.JSONField[Any, Any] = models.JSONField(default=dict)
    """What was asked for (`skills.changes`), applied to the release that is current when the build
    begins, so that one build's failure is not the next one's."""
    rollout_percent = models.PositiveSmallIntegerField(null=True, blank=True)
    """Not null: the result becomes the space's candidate for this share of new sessions."""
    rollout_sessions: models.JSONField[Any, Any] = models.JSONField(default=list)
    """Sessions, by the platform's own ids, that get the candidate first."""
    state = models.CharField(max_length=10, choices=BuildState, default=BuildState.QUEUED)
    step = models.CharField(max_length=10, choices=BuildStep, blank=True)
    steps: models.JSONField[Any, Any] = models.JSONField(default=list)
    """Finished and running stages: {"step", "started_at", "finished_at", "ok"}."""
    attempt = models.PositiveIntegerField(default=0)
    """Counts the workers that took it up; a write under an older number changes nothing."""
    template_id = models.CharField(max_length=200, blank=True)
    """The base template that its name stood for when the build began."""
    fingerprint = models.CharField(max_length=64, blank=True)
    """Of the provider account when the build began."""
    inputs_digest = models.CharField(max_length=64, blank=True)
    parent = models.ForeignKey("Release", models.SET_NULL, null=True, related_name="+")
    """The release that the sandbox was started from; null is the base template."""
    reused_release = models.ForeignKey("Release", models.SET_NULL, null=True, related_name="+")
    """An earlier release of the same inputs that was switched to instead of building."""
    sandbox_id = models.CharField(max_length=100, blank=True)
    """Its sandbox until that is deleted."""
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    error_code = models.CharField(max_length=40, blank=True)
    error = models.TextField(blank=True)
    report: models.JSONField[Any, Any] = models.JSONField(default=dict)
    """Of the verification: checks with their outcome, output and repair hints."""
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = BuildQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["state", "heartbeat_at"]),
            models.Index(fields=["space", "finished_at"]),
        ]

    def __str__(self) -> str:
        return self.id

    @property
    def is_finished(self) -> bool:
        return self.state not in (BuildState.QUEUED, BuildState.RUNNING)

    @property
    def result(self) -> Release | None:
        """The release it made or used again, once it has succeeded."""
        if self.state != BuildState.SUCCEEDED:
            return None
        return self.reused_release or getattr(self, "release", None)

    @property
    def queue_position(self) -> int:
        """How many builds of this space run first; 0 is the next or running one."""
        return Build.objects.unfinished().filter(space=self.space_id, pk__lt=self.pk).count()


class BuildSkill(models.Model):
    """One skill of the set that a build installs, in order. The set is complete: what is not in it
    is not in the release."""

    build = models.ForeignKey(Build, models.CASCADE, related_name="items")
    position = models.PositiveIntegerField()
    version = models.ForeignKey(SkillVersion, models.PROTECT, related_name="+")
    plan = models.ForeignKey(PlanRevision, models.PROTECT, related_name="+")

    class Meta:
        ordering = ["position"]
        constraints = [
            models.UniqueConstraint(fields=["build", "position"], name="build_position_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.version} in {self.build_id}"


class BuildLogLine(models.Model):
    """One or more whole lines of a build's log, joined by line feeds, ANSI colours kept. The id is the
    resume point of the live view."""

    id: models.BigAutoField[int, int] = models.BigAutoField(primary_key=True)
    build = models.ForeignKey(Build, models.CASCADE, related_name="log")
    step = models.CharField(max_length=10, choices=BuildStep, blank=True)
    stream = models.CharField(max_length=6, default="info")
    """stdout, stderr, or info for the product's own words."""
    text = models.TextField()
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return self.text


class ReleaseState(models.TextChoices):
    BUILDING = "building", _("Building")
    ACTIVE = "active", _("Active")
    SUPERSEDED = "superseded", _("Superseded")
    BROKEN = "broken", _("Broken")
    DELETED = "deleted", _("Deleted")


class ReleaseQuerySet(models.QuerySet["Release"]):
    def kept(self) -> ReleaseQuerySet:
        """Those whose snapshot should still exist."""
        return self.filter(state__in=[ReleaseState.ACTIVE, ReleaseState.SUPERSEDED])


class Release(models.Model):
    """The ledger of snapshots: a row stands before its snapshot does, and names it in advance, so
    that nothing billed is ever forgotten."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH, default=partial(new_id, "rel"))
    space: models.ForeignKey[Any, SpacePort] = models.ForeignKey(
        "tenants.Space", models.CASCADE, related_name="releases"
    )
    generation = models.PositiveIntegerField()
    build = models.OneToOneField(Build, models.SET_NULL, null=True, related_name="release")
    parent = models.ForeignKey("self", models.SET_NULL, null=True, related_name="children")
    backend: models.ForeignKey[Any, BackendPort] = models.ForeignKey(
        "fleet.Backend", models.PROTECT, related_name="releases"
    )
    fingerprint = models.CharField(max_length=64)
    """Of the provider account that holds the snapshot, as it was when the build began."""
    inputs_digest = models.CharField(max_length=64, blank=True)
    """Of everything that determined the result: an equal one can be used again."""
    state = models.CharField(max_length=10, choices=ReleaseState, default=ReleaseState.BUILDING)
    planned_name = models.CharField(max_length=80, unique=True)
    snapshot_id = models.CharField(max_length=200, blank=True)
    source_sandbox_id = models.CharField(max_length=100, blank=True)
    """Where the snapshot was taken, to find it among the provider's."""
    template_id = models.CharField(max_length=200, blank=True)
    """The base template at the bottom of it."""
    size_bytes = models.PositiveBigIntegerField(null=True, blank=True)
    sizes: models.JSONField[Any, Any] = models.JSONField(default=dict)
    """Bytes of each skill's folder, installed packages included."""
    packages: models.JSONField[Any, Any] = models.JSONField(default=dict)
    """Resolved versions: {"pip": {skill: {name: version}}, "npm": {skill: {…}}, "apt": {…}}."""
    note = models.CharField(max_length=300, blank=True)
    problem = models.CharField(max_length=300, blank=True)
    """Why it is broken, as a sentence."""
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    activated_at = models.DateTimeField(null=True, blank=True)
    superseded_at = models.DateTimeField(null=True, blank=True)
    delete_requested_at = models.DateTimeField(null=True, blank=True)
    """Its snapshot is being deleted; nothing starts from it any more."""
    deleted_at = models.DateTimeField(null=True, blank=True)

    objects = ReleaseQuerySet.as_manager()

    class Meta:
        ordering = ["-generation"]
        constraints = [
            models.UniqueConstraint(fields=["space", "generation"], name="generation_unique"),
            models.CheckConstraint(
                condition=~Q(state="active") | ~Q(snapshot_id=""), name="active_has_snapshot"
            ),
        ]

    def __str__(self) -> str:
        return f"release {self.generation}"

    def usable_on(self, backend: BackendPort) -> bool:
        """A sandbox can start from it: the snapshot exists in the account that the backend uses."""
        return (
            self.state in (ReleaseState.ACTIVE, ReleaseState.SUPERSEDED)
            and self.delete_requested_at is None
            and bool(self.snapshot_id)
            and self.backend_id == backend.pk
            and self.fingerprint == backend.fingerprint
        )

    def live_sessions(self) -> models.QuerySet[Any]:
        """Sessions whose sandbox runs or sleeps on it."""
        sessions: models.QuerySet[Any] = self.sessions.filter(state__in=["active", "paused"])
        return sessions

    def prunable_at(self, *, session_ttl: timedelta) -> datetime | None:
        """When a superseded snapshot may go: after max(24 h, session TTL + 1 h)."""
        if self.superseded_at is None:
            return None
        hours = timedelta(hours=1)
        return self.superseded_at + max(24 * hours, session_ttl + hours)


class ReleaseSkill(models.Model):
    """One skill that a release carries, in order."""

    release = models.ForeignKey(Release, models.CASCADE, related_name="items")
    position = models.PositiveIntegerField()
    version = models.ForeignKey(SkillVersion, models.PROTECT, related_name="+")
    plan = models.ForeignKey(PlanRevision, models.PROTECT, related_name="+")

    class Meta:
        ordering = ["position"]
        constraints = [
            models.UniqueConstraint(fields=["release", "position"], name="release_position_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.version} in {self.release_id}"


class PromotionKind(models.TextChoices):
    BUILD = "build", _("Built")
    REUSE = "reuse", _("Built before, used again")
    ROLL_BACK = "roll_back", _("Rolled back")
    CANDIDATE = "candidate", _("Candidate for some sessions")
    PROMOTE = "promote", _("Candidate promoted")
    WITHDRAW = "withdraw", _("Candidate withdrawn")
    CLEAR = "clear", _("Last skill removed")


class Promotion(models.Model):
    """One switch of what new sessions get, with its reason: the timeline of what served when."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH, default=partial(new_id, "prm"))
    space: models.ForeignKey[Any, SpacePort] = models.ForeignKey(
        "tenants.Space", models.CASCADE, related_name="promotions"
    )
    release = models.ForeignKey(Release, models.CASCADE, null=True, related_name="promotions")
    """Null when the space was switched to its base template."""
    kind = models.CharField(max_length=9, choices=PromotionKind, default=PromotionKind.BUILD)
    reason = models.CharField(max_length=300, blank=True)
    session_ids: models.JSONField[Any, Any] = models.JSONField(null=True)
    """The running sessions that are concerned, by the platform's own ids; null is all."""
    sessions_told_at = models.DateTimeField(null=True, blank=True)
    """When the space's running sessions were marked stale; null is still to be done."""
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["space", "sessions_told_at"])]

    def __str__(self) -> str:
        return f"{self.kind} {self.release} in {self.space_id}"
