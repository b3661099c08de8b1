"""Reading the audit log."""

from __future__ import annotations

from typing import Any

import django_filters
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from rest_framework import serializers

from console.api.pages import filtered, page_of
from console.api.schema import operation
from console.api.views import ApiView
from console.audit.models import AuditEntry, Outcome
from console.tenants.access import Action, Principal

__all__ = ["Audit"]


class AuditEntrySerializer(serializers.ModelSerializer[AuditEntry]):
    tenant_id = serializers.CharField(allow_null=True)
    space_id = serializers.CharField(allow_null=True)
    details = serializers.JSONField()

    class Meta:
        model = AuditEntry
        fields = (
            "id",
            "created_at",
            "tenant_id",
            "space_id",
            "actor",
            "action",
            "target",
            "outcome",
            "details",
            "address",
            "request_id",
        )


class AuditFilter(django_filters.FilterSet):
    actor = django_filters.CharFilter()
    action = django_filters.CharFilter()
    target = django_filters.CharFilter()
    outcome = django_filters.ChoiceFilter(choices=Outcome.choices)
    tenant = django_filters.CharFilter(field_name="tenant_id")
    space = django_filters.CharFilter(field_name="space_id")
    since = django_filters.IsoDateTimeFilter(field_name="created_at", lookup_expr="gte")
    until = django_filters.IsoDateTimeFilter(field_name="created_at", lookup_expr="lt")

    class Meta:
        model = AuditEntry
        fields: tuple[str, ...] = ()


def visible(principal: Principal) -> QuerySet[AuditEntry, Any]:
    """Of whole tenants for who may audit them, else of the spaces that they may audit."""
    rows = AuditEntry.objects.all()
    if principal.everything:
        return rows
    return rows.filter(
        Q(tenant__in=principal.tenants(Action.AUDIT)) | Q(space__in=principal.spaces(Action.AUDIT))
    )


class Audit(ApiView):
    needs = {"GET": None}

    @operation(
        "audit_list",
        "Who did what, newest first",
        tag="audit",
        response=AuditEntrySerializer,
        many=True,
        filters=AuditFilter,
        path_errors=False,
        description="What the caller has the right `audit` for; without that right it is empty.",
    )
    def get(self, request: HttpRequest) -> HttpResponse:
        rows = filtered(AuditFilter, request, visible(self.principal))
        return page_of(request, rows, AuditEntrySerializer)
