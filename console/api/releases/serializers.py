"""Bodies of builds and releases."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from console.api.schema import ErrorSerializer, event_stream
from skills.models import (
    Build,
    BuildLogLine,
    BuildSkill,
    BuildStep,
    BuildTrigger,
    Promotion,
    Release,
    ReleaseSkill,
)

__all__ = [
    "LOG_EVENTS",
    "BuildSerializer",
    "DiffSerializer",
    "LogSerializer",
    "NewBuildSerializer",
    "PromotionSerializer",
    "ReasonSerializer",
    "ReleaseSerializer",
    "RolloutChangeSerializer",
    "RolloutSerializer",
]


class CarriedSerializer(serializers.Serializer[Any]):
    """A skill version in a build or a release, with the plan that it was, or will be, installed by."""

    name = serializers.CharField(source="version.skill.name")
    skill_id = serializers.CharField(source="version.skill_id")
    version_id = serializers.CharField()
    version = serializers.IntegerField(source="version.number")
    plan = serializers.IntegerField(source="plan.number")


class StageSerializer(serializers.Serializer[Any]):
    step = serializers.CharField()
    started_at = serializers.CharField()
    finished_at = serializers.CharField(allow_null=True, required=False)
    ok = serializers.BooleanField(allow_null=True, required=False)


class BuildSerializer(serializers.ModelSerializer[Build]):
    space_id = serializers.CharField()
    skills = serializers.SerializerMethodField()
    steps = serializers.ListField(child=serializers.DictField(child=serializers.JSONField()))
    report = serializers.DictField(child=serializers.JSONField())
    rollout_sessions = serializers.ListField(child=serializers.CharField())
    release_id = serializers.SerializerMethodField()

    class Meta:
        model = Build
        fields = (
            "id",
            "space_id",
            "trigger",
            "from_base",
            "note",
            "state",
            "step",
            "steps",
            "skills",
            "rollout_percent",
            "rollout_sessions",
            "release_id",
            "error_code",
            "error",
            "report",
            "cancel_requested_at",
            "created_at",
            "started_at",
            "finished_at",
        )

    def get_skills(self, row: Build) -> list[dict[str, Any]]:
        return carried(row.items.select_related("version__skill", "plan"))

    def get_release_id(self, row: Build) -> str | None:
        return row.result.pk if row.result else None


class ReleaseSerializer(serializers.ModelSerializer[Release]):
    space_id = serializers.CharField()
    build_id = serializers.CharField(allow_null=True)
    parent_id = serializers.CharField(allow_null=True)
    backend_id = serializers.CharField()
    skills = serializers.SerializerMethodField()
    packages = serializers.DictField(child=serializers.JSONField())
    sizes = serializers.DictField(child=serializers.IntegerField())
    serves = serializers.SerializerMethodField()

    class Meta:
        model = Release
        fields = (
            "id",
            "space_id",
            "generation",
            "state",
            "serves",
            "problem",
            "skills",
            "packages",
            "sizes",
            "size_bytes",
            "build_id",
            "parent_id",
            "backend_id",
            "snapshot_id",
            "template_id",
            "note",
            "created_at",
            "activated_at",
            "superseded_at",
            "delete_requested_at",
            "deleted_at",
        )

    def get_skills(self, row: Release) -> list[dict[str, Any]]:
        return carried(row.items.select_related("version__skill", "plan"))

    def get_serves(self, row: Release) -> bool:
        """Every new session of the space gets it."""
        return row.space.current_release_id == row.pk


def carried(items: Any) -> list[dict[str, Any]]:
    rows: list[BuildSkill | ReleaseSkill] = list(items)
    return [
        {
            "name": row.version.skill.name,
            "skill_id": row.version.skill_id,
            "version_id": row.version_id,
            "version": row.version.number,
            "plan": row.plan.number,
        }
        for row in rows
    ]


class NewBuildSerializer(serializers.Serializer[Any]):
    """Without any of `add`, `remove` and `versions`, only `compact` and `rebuild` are builds."""

    trigger = serializers.ChoiceField(
        choices=BuildTrigger.choices, required=False, default=BuildTrigger.CHANGE.value
    )
    add = serializers.ListField(
        child=serializers.CharField(), required=False, default=list, help_text="Version ids."
    )
    remove = serializers.ListField(
        child=serializers.CharField(), required=False, default=list, help_text="Skill ids."
    )
    versions = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        allow_null=True,
        default=None,
        help_text="Version ids: exactly this set, in place of `add` and `remove`.",
    )
    from_base = serializers.BooleanField(required=False, default=False)
    rollout_percent = serializers.IntegerField(
        required=False, allow_null=True, default=None, min_value=0, max_value=100
    )
    rollout_sessions = serializers.ListField(
        child=serializers.CharField(max_length=256), required=False, default=list
    )
    note = serializers.CharField(required=False, allow_blank=True, default="", max_length=300)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        named = attrs["add"] or attrs["remove"] or attrs["versions"] is not None
        if attrs["versions"] is not None and (attrs["add"] or attrs["remove"]):
            raise serializers.ValidationError("Send versions, or add and remove, not both.")
        if attrs["trigger"] == BuildTrigger.CHANGE and not named:
            raise serializers.ValidationError("Say what changes: add, remove or versions.")
        if attrs["trigger"] != BuildTrigger.CHANGE and named:
            raise serializers.ValidationError("Compact and rebuild change no skill.")
        return attrs


class LogLineSerializer(serializers.ModelSerializer[BuildLogLine]):
    class Meta:
        model = BuildLogLine
        fields = ("id", "step", "stream", "text", "created_at")


class LogSerializer(serializers.Serializer[Any]):
    lines = LogLineSerializer(many=True)
    last_id = serializers.IntegerField(help_text="Send it as `after` for what follows.")
    finished = serializers.BooleanField(help_text="Nothing follows.")


class LoggedSerializer(serializers.Serializer[Any]):
    step = serializers.ChoiceField(choices=BuildStep.choices, allow_blank=True)
    stream = serializers.CharField(help_text="stdout, stderr, or info for the product's own words.")
    text = serializers.CharField(allow_blank=True)


LOG_EVENTS = event_stream(
    "Log",
    {"line": LoggedSerializer, "end": None, "error": ErrorSerializer},
    with_id=["line"],
)


class ChangeSerializer(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(choices=["added", "removed", "changed"])
    name = serializers.CharField()
    scope = serializers.CharField()
    before = serializers.CharField()
    after = serializers.CharField()


class DiffSerializer(serializers.Serializer[Any]):
    skills = ChangeSerializer(many=True)
    files = ChangeSerializer(many=True)
    pip = ChangeSerializer(many=True)
    npm = ChangeSerializer(many=True)
    apt = ChangeSerializer(many=True)
    template = ChangeSerializer(allow_null=True)
    size_before_bytes = serializers.IntegerField(allow_null=True)
    size_after_bytes = serializers.IntegerField(allow_null=True)
    size_change_bytes = serializers.IntegerField(allow_null=True)


class ReasonSerializer(serializers.Serializer[Any]):
    reason = serializers.CharField(required=False, allow_blank=True, default="", max_length=300)


class RolloutChangeSerializer(ReasonSerializer):
    percent = serializers.IntegerField(min_value=0, max_value=100)
    sessions = serializers.ListField(
        child=serializers.CharField(max_length=256),
        required=False,
        default=list,
        help_text="Sessions that get it whatever the share.",
    )


class RolloutSerializer(serializers.Serializer[Any]):
    current_release_id = serializers.CharField(allow_null=True)
    candidate_release_id = serializers.CharField(allow_null=True)
    percent = serializers.IntegerField()
    sessions = serializers.ListField(child=serializers.CharField())


class PromotionSerializer(serializers.ModelSerializer[Promotion]):
    space_id = serializers.CharField()
    release_id = serializers.CharField(allow_null=True, help_text="Null is the base template.")

    class Meta:
        model = Promotion
        fields = (
            "id",
            "space_id",
            "release_id",
            "kind",
            "reason",
            "sessions_told_at",
            "created_at",
        )
