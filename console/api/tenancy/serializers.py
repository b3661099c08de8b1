"""Bodies of tenants, members and keys."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from console.tenants.access import SCOPES
from console.tenants.keys import KINDS
from console.tenants.models import ApiKey, Membership, Role, Tenant, slug_validator

__all__ = [
    "ChangeRoleSerializer",
    "ChangeTenantSerializer",
    "IssuedKeySerializer",
    "KeySerializer",
    "MeSerializer",
    "MemberSerializer",
    "NewKeySerializer",
    "NewMemberSerializer",
    "NewTenantSerializer",
    "TenantSerializer",
]


class GrantSerializer(serializers.Serializer[Any]):
    tenant_id = serializers.CharField()
    space_id = serializers.CharField(allow_null=True, help_text="Null is the whole tenant.")
    rights = serializers.ListField(child=serializers.ChoiceField(choices=SCOPES))


class MeSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    is_platform_admin = serializers.BooleanField()
    grants = GrantSerializer(many=True)


class TenantSerializer(serializers.ModelSerializer[Tenant]):
    class Meta:
        model = Tenant
        fields = ("id", "slug", "name", "created_at")


class FirstAdminSerializer(serializers.Serializer[Any]):
    username = serializers.CharField(max_length=150)
    password = serializers.CharField(
        required=False,
        default="",
        allow_blank=True,
        trim_whitespace=False,
        help_text="For a person who has no account yet.",
    )


class NewTenantSerializer(serializers.Serializer[Any]):
    slug = serializers.CharField(max_length=50, validators=[slug_validator])
    name = serializers.CharField(max_length=100)
    admin = FirstAdminSerializer(
        required=False, allow_null=True, default=None, help_text="Its first admin."
    )


class ChangeTenantSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=100)


class MemberSerializer(serializers.ModelSerializer[Membership]):
    username = serializers.CharField(source="user.username")
    space_id = serializers.CharField(allow_null=True, help_text="Null is the whole tenant.")

    class Meta:
        model = Membership
        fields = ("id", "username", "role", "space_id", "created_at")


class NewMemberSerializer(serializers.Serializer[Any]):
    username = serializers.CharField(max_length=150)
    role = serializers.ChoiceField(choices=Role.choices)
    space_id = serializers.CharField(required=False, allow_null=True, default=None)
    password = serializers.CharField(
        required=False,
        default="",
        allow_blank=True,
        trim_whitespace=False,
        help_text="For a person who has no account yet.",
    )


class ChangeRoleSerializer(serializers.Serializer[Any]):
    role = serializers.ChoiceField(choices=Role.choices)


class KeySerializer(serializers.ModelSerializer[ApiKey]):
    space_id = serializers.CharField(allow_null=True)
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=SCOPES))

    class Meta:
        model = ApiKey
        fields = (
            "id",
            "name",
            "prefix",
            "scopes",
            "space_id",
            "created_at",
            "expires_at",
            "last_used_at",
            "revoked_at",
        )


class IssuedKeySerializer(KeySerializer):
    secret = serializers.CharField(help_text="Shown now and never again.")

    class Meta(KeySerializer.Meta):
        fields = (*KeySerializer.Meta.fields, "secret")  # type: ignore[assignment]


class NewKeySerializer(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=100)
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=SCOPES), min_length=1)
    space_id = serializers.CharField(required=False, allow_null=True, default=None)
    kind = serializers.ChoiceField(choices=KINDS, required=False, default="sky")
    expires_at = serializers.DateTimeField(required=False, allow_null=True, default=None)
