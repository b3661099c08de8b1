"""Bodies of backends, their images and their runs."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from rest_framework import serializers

from console.fleet.connection import MASK, masked
from console.fleet.models import (
    Backend,
    FormerAccount,
    ReconcileReport,
    Verification,
    VerificationState,
)
from sandboxes import registry
from sandboxes.checklist import Outcome
from sandboxes.types import TemplateStatus

__all__ = [
    "BackendChangeSerializer",
    "BackendSerializer",
    "ChangeBackendSerializer",
    "CordonSerializer",
    "CredentialsSerializer",
    "EnsureTemplateSerializer",
    "FormerAccountSerializer",
    "ImagesSerializer",
    "InventorySerializer",
    "NewBackendSerializer",
    "NewReconcileSerializer",
    "NewVerificationSerializer",
    "ReconcileSerializer",
    "TemplateBuildSerializer",
    "VerificationSerializer",
]

_SETTINGS = (
    "As the provider names them, secrets among them. What is left out stays; null takes a setting back to "
    f"its default and a secret away; a secret sent as `{MASK}` stays."
)


class Values(serializers.DictField):
    child = serializers.JSONField(allow_null=True)


class PriceSerializer(serializers.Serializer[Any]):
    """What a sandbox costs, for estimates."""

    hourly_cost = serializers.DecimalField(
        max_digits=10,
        decimal_places=4,
        min_value=Decimal(0),
        required=False,
        allow_null=True,
        help_text="What one sandbox costs an hour; null: nobody knows.",
    )
    currency = serializers.CharField(
        max_length=3,
        required=False,
        allow_blank=True,
        default="",
        help_text="Of the cost, which needs one: three letters, ISO 4217.",
    )


class BackendSerializer(serializers.ModelSerializer[Backend]):
    """Secrets are write-only: stored ones are `***`, and named in `secrets_set`."""

    tenant_id = serializers.CharField()
    settings = serializers.SerializerMethodField(
        help_text="Every setting; a stored secret as `***`, one that is not set as empty."
    )
    secrets_set = serializers.SerializerMethodField()
    fingerprint = serializers.CharField(
        help_text="Of the provider account; releases start only where it is theirs."
    )
    cordoned = serializers.SerializerMethodField(help_text="An admin keeps new sandboxes off it.")
    capabilities = serializers.DictField(child=serializers.JSONField())

    class Meta:
        model = Backend
        fields = (
            "id",
            "tenant_id",
            "name",
            "provider",
            "settings",
            "secrets_set",
            "fingerprint",
            "cordoned",
            "cordoned_at",
            "cordon_reason",
            "cordoned_by",
            "checked_at",
            "check_error",
            "check_took_ms",
            "capabilities",
            "hourly_cost",
            "currency",
            "created_at",
        )

    def get_settings(self, row: Backend) -> dict[str, Any]:
        return masked(row)

    def get_secrets_set(self, row: Backend) -> list[str]:
        return sorted(name for name, value in row.secrets.items() if value)

    def get_cordoned(self, row: Backend) -> bool:
        return row.cordoned_at is not None


class NewBackendSerializer(PriceSerializer):
    name = serializers.CharField(max_length=100)
    provider = serializers.ChoiceField(choices=sorted(registry.PROVIDERS))
    settings = Values(
        required=False, default=dict, help_text="As the provider names them, secrets among them."
    )


class ChangeBackendSerializer(PriceSerializer):
    """What is left out stays as it is."""

    name = serializers.CharField(max_length=100, required=False)
    settings = Values(required=False, default=dict, help_text=_SETTINGS)
    force = serializers.BooleanField(
        required=False,
        default=False,
        help_text="Go on where the old account can't be asked what lives there, or refuses.",
    )
    end_sandboxes = serializers.BooleanField(
        required=False,
        default=False,
        help_text="End what lives at the old account; sessions get new sandboxes, without their files.",
    )


class ReleaseNameSerializer(serializers.Serializer[Any]):
    space_id = serializers.CharField()
    release_id = serializers.CharField()
    generation = serializers.IntegerField()


class BackendChangeSerializer(serializers.Serializer[Any]):
    """What a change would do."""

    identity = serializers.ListField(
        child=serializers.CharField(),
        help_text="The settings by which it would point elsewhere; such a change needs an empty account.",
    )
    moves_account = serializers.BooleanField()
    same_account = serializers.BooleanField(
        allow_null=True, help_text="Whether it was proven to be the same; null: it can't be told."
    )
    proof = serializers.CharField(help_text="How that is known, as a sentence.")
    silent_releases = ReleaseNameSerializer(
        many=True, help_text="Releases that could no longer start there."
    )
    heard_releases = ReleaseNameSerializer(
        many=True, help_text="Releases that could start there again."
    )
    spaces = serializers.ListField(
        child=serializers.CharField(), help_text="Ids of spaces that fall back to their base."
    )
    live_sessions = serializers.IntegerField(help_text="Of those spaces.")


class CredentialsSerializer(serializers.Serializer[Any]):
    secrets = serializers.DictField(
        child=serializers.CharField(allow_blank=False, trim_whitespace=True, max_length=100_000),
        allow_empty=False,
        help_text="By the provider's names for them.",
    )
    force = serializers.BooleanField(
        required=False, default=False, help_text="Also while the provider does not answer."
    )
    end_sandboxes = serializers.BooleanField(
        required=False,
        default=False,
        help_text="If they open another account: end what lives at the old one.",
    )


class CordonSerializer(serializers.Serializer[Any]):
    reason = serializers.CharField(
        max_length=300,
        required=False,
        allow_blank=True,
        default="",
        help_text="Told to whoever is refused a sandbox.",
    )


class LiveSandboxSerializer(serializers.Serializer[Any]):
    sandbox_id = serializers.CharField()
    state = serializers.CharField()
    session = serializers.CharField()
    space = serializers.CharField()
    build = serializers.CharField()


class FormerAccountSerializer(serializers.ModelSerializer[FormerAccount]):
    """An account that the backend left. Its credentials are kept until nothing of ours is there."""

    class Meta:
        model = FormerAccount
        fields = (
            "id",
            "provider",
            "fingerprint",
            "problem",
            "left_at",
            "looked_at",
            "finished_at",
        )


class InventorySerializer(serializers.Serializer[Any]):
    live = LiveSandboxSerializer(many=True)
    unverifiable = serializers.CharField(
        help_text="Why the provider couldn't be asked: then nothing is known, which is not zero."
    )


class TemplateSerializer(serializers.Serializer[Any]):
    id = serializers.CharField()
    names = serializers.ListField(child=serializers.CharField())
    status = serializers.ChoiceField(choices=[status.value for status in TemplateStatus])
    created_at = serializers.DateTimeField(allow_null=True)
    size_bytes = serializers.IntegerField(allow_null=True)
    error = serializers.CharField()
    dependents = serializers.ListField(
        child=serializers.CharField(), help_text="What stands on it; empty if it may be deleted."
    )


class SnapshotSerializer(serializers.Serializer[Any]):
    id = serializers.CharField()
    names = serializers.ListField(child=serializers.CharField())
    created_at = serializers.DateTimeField(allow_null=True)
    size_bytes = serializers.IntegerField(allow_null=True)
    release_id = serializers.CharField(allow_null=True, help_text="Null: not one of ours.")
    space_id = serializers.CharField(allow_null=True)


class TemplateBuildSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    status = serializers.ChoiceField(choices=[status.value for status in TemplateStatus])
    step = serializers.CharField()
    fraction = serializers.FloatField(allow_null=True, help_text="0 to 1; null where unknown.")
    error = serializers.CharField()
    template_id = serializers.CharField(help_text="Known once it is ready.")


class NeededTemplateSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    users = serializers.ListField(child=serializers.CharField())
    build = TemplateBuildSerializer(allow_null=True)
    problem = serializers.CharField(help_text="Why nothing can start from it; empty if it can.")


class ImagesSerializer(serializers.Serializer[Any]):
    templates = TemplateSerializer(many=True)
    snapshots = SnapshotSerializer(many=True)
    needed = NeededTemplateSerializer(many=True, help_text="What spaces are to start from.")
    may_build = serializers.BooleanField(help_text="Templates are made from here.")
    note = serializers.CharField()


class EnsureTemplateSerializer(serializers.Serializer[Any]):
    rebuild = serializers.BooleanField(
        required=False, default=False, help_text="Also if it is there: a new version of it."
    )


class NewReconcileSerializer(serializers.Serializer[Any]):
    dry_run = serializers.BooleanField(
        required=False, default=True, help_text="Report only; delete nothing."
    )


class ReconcileSerializer(serializers.ModelSerializer[ReconcileReport]):
    backend_id = serializers.CharField()
    state = serializers.ChoiceField(choices=["queued", "running", "failed", "done"])
    findings = serializers.ListField(child=serializers.DictField(child=serializers.JSONField()))

    class Meta:
        model = ReconcileReport
        fields = (
            "id",
            "backend_id",
            "state",
            "dry_run",
            "by_hand",
            "actor",
            "created_at",
            "started_at",
            "finished_at",
            "seen",
            "bound",
            "building",
            "paused",
            "orphaned",
            "claimable",
            "stuck",
            "unverifiable",
            "drifted",
            "deleted",
            "corrected",
            "findings",
            "findings_left_out",
            "aborted",
        )


class NewVerificationSerializer(serializers.Serializer[Any]):
    template = serializers.CharField(
        max_length=200,
        required=False,
        allow_blank=True,
        default="",
        help_text="What to start from; empty is what the backend's sandboxes start from.",
    )


class PointSerializer(serializers.Serializer[Any]):
    number = serializers.IntegerField()
    name = serializers.CharField()
    title = serializers.CharField()
    outcome = serializers.ChoiceField(choices=[outcome.value for outcome in Outcome])
    evidence = serializers.ListField(child=serializers.CharField(allow_blank=True))
    reason = serializers.CharField(allow_blank=True)
    expected = serializers.BooleanField(
        help_text="Skipped, because the backend does not claim to do that."
    )
    took_s = serializers.FloatField()


class VerificationSerializer(serializers.ModelSerializer[Verification]):
    backend_id = serializers.CharField()
    state = serializers.ChoiceField(choices=VerificationState.choices)
    points = PointSerializer(many=True, help_text="As they come: ask again until it is finished.")

    class Meta:
        model = Verification
        fields = (
            "id",
            "backend_id",
            "template",
            "fingerprint",
            "state",
            "points",
            "problem",
            "actor",
            "created_at",
            "started_at",
            "finished_at",
        )
