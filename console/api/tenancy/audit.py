"""The audit log: read, taken out whole, proved to be unbroken."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import django_filters
from asgiref.sync import sync_to_async
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from rest_framework import serializers
from rest_framework.utils.encoders import JSONEncoder

from console.api.pages import filtered, page_of
from console.api.schema import Media, operation
from console.api.views import ApiView, answer
from console.audit.models import AuditChain, AuditEntry, Outcome
from console.audit.services import verify
from console.tenants.access import Action, Principal

__all__ = ["Audit", "AuditExport", "AuditVerify"]

LINES = "application/jsonl"


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


class VerifiedSerializer(serializers.Serializer[Any]):
    tenant_id = serializers.CharField(allow_null=True, help_text="Null is the platform's own.")
    entries = serializers.IntegerField(
        help_text="That follow each other without a gap or a change."
    )
    broken_at = serializers.IntegerField(
        allow_null=True, help_text="The number of the first entry that does not fit."
    )
    reason = serializers.CharField(help_text="What is wrong with it; empty if nothing is.")


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


class AuditExport(ApiView):
    needs = {"GET": None}

    @operation(
        "audit_export",
        "The same, all at once and oldest first",
        tag="audit",
        response=Media(LINES),
        filters=AuditFilter,
        path_errors=False,
        description="One JSON object a line, as in the list, streamed with flat memory.",
    )
    async def get(self, request: HttpRequest) -> StreamingHttpResponse:
        rows = await sync_to_async(filtered)(AuditFilter, request, visible(self.principal))
        response = StreamingHttpResponse(_lines(rows.order_by("pk")), content_type=LINES)
        response.headers["Content-Disposition"] = 'attachment; filename="audit.jsonl"'
        return response


async def _lines(rows: QuerySet[AuditEntry, Any]) -> AsyncGenerator[bytes, None]:
    async for entry in rows.aiterator(chunk_size=500):
        data = AuditEntrySerializer(entry).data
        yield json.dumps(data, cls=JSONEncoder, ensure_ascii=False).encode() + b"\n"


class AuditVerify(ApiView):
    needs = {"GET": None}

    @operation(
        "audit_verify",
        "Prove that no entry was changed or removed",
        tag="audit",
        response=VerifiedSerializer,
        listed=True,
        path_errors=False,
        description=(
            "Every hash of each whole tenant that the caller may audit is computed anew, and for the "
            "platform's admin those of the platform's own chain."
        ),
    )
    def get(self, request: HttpRequest) -> HttpResponse:
        chains = AuditChain.objects.all()
        if not self.principal.everything:
            chains = chains.filter(pk__in=self.principal.tenants(Action.AUDIT).values("pk"))
        return answer([_verified(chain) for chain in chains.order_by("pk")])


def _verified(chain: AuditChain) -> dict[str, Any]:
    found = verify(chain)
    return {
        "tenant_id": chain.key or None,
        "entries": found.entries,
        "broken_at": found.broken or None,
        "reason": found.reason,
    }
