"""Bodies of spaces."""

from __future__ import annotations

import dataclasses
from typing import Any

from rest_framework import serializers

from console.tenants.models import Rollout, Space, slug_validator
from sandboxes.capabilities import Capabilities

__all__ = [
    "CapabilitiesSerializer",
    "ChangeSpaceSerializer",
    "NewSpaceSerializer",
    "SpaceSerializer",
]


class SpaceSerializer(serializers.ModelSerializer[Space]):
    tenant_id = serializers.CharField()
    backend_id = serializers.CharField()
    current_release_id = serializers.CharField(allow_null=True)
    candidate_release_id = serializers.CharField(allow_null=True)
    env = serializers.DictField(child=serializers.CharField())

    class Meta:
        model = Space
        fields = (
            "id",
            "tenant_id",
            "slug",
            "name",
            "description",
            "backend_id",
            "base_template",
            "current_release_id",
            "candidate_release_id",
            "rollout",
            "idle_timeout_s",
            "env",
            "created_at",
            "delete_requested_at",
            "delete_problem",
        )


def _no_nul(value: str) -> None:
    if "\0" in value:
        raise serializers.ValidationError("A variable can't hold a NUL character.")


class EnvField(serializers.DictField):
    child = serializers.CharField(allow_blank=True, trim_whitespace=False, validators=[_no_nul])

    def to_internal_value(self, data: Any) -> Any:
        found = super().to_internal_value(data)
        for name in found:
            if not name or "=" in name or "\0" in name:
                raise serializers.ValidationError(f"“{name}” is no name of a variable.")
        return found


class NewSpaceSerializer(serializers.Serializer[Any]):
    tenant_id = serializers.CharField()
    backend_id = serializers.CharField()
    slug = serializers.CharField(max_length=50, validators=[slug_validator])
    name = serializers.CharField(max_length=100)
    description = serializers.CharField(
        max_length=500, required=False, allow_blank=True, default=""
    )
    base_template = serializers.CharField(max_length=200, required=False, default="base")


class ChangeSpaceSerializer(serializers.Serializer[Any]):
    """What is left out stays as it is."""

    name = serializers.CharField(max_length=100, required=False)
    description = serializers.CharField(max_length=500, required=False, allow_blank=True)
    base_template = serializers.CharField(max_length=200, required=False)
    rollout = serializers.ChoiceField(choices=Rollout.choices, required=False)
    idle_timeout_s = serializers.IntegerField(
        min_value=60, max_value=30 * 24 * 3600, required=False
    )
    env = EnvField(required=False)


class CapabilitiesSerializer(serializers.Serializer[Any]):
    provider = serializers.CharField()
    capabilities = serializers.DictField(
        child=serializers.BooleanField(),
        help_text=f"Of {', '.join(f.name for f in dataclasses.fields(Capabilities)[:-1])}.",
    )
    notes = serializers.DictField(
        child=serializers.CharField(), help_text="By capability: why it is missing or reduced."
    )
