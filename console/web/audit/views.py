"""The audit log: who did what, filtered, and as CSV or JSON."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator

import django_filters
from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse
from django.utils.translation import gettext_lazy as _

from console.audit.models import AuditEntry, Outcome
from console.tenants.access import Action, Principal
from console.web.requests import ConsoleRequest, page

COLUMNS = (
    "created_at",
    "actor",
    "action",
    "target",
    "outcome",
    "space",
    "address",
    "request_id",
    "details",
)


class AuditFilter(django_filters.FilterSet):
    q = django_filters.CharFilter(method="search", label=_("Actor, action or target"))
    outcome = django_filters.ChoiceFilter(choices=Outcome.choices, empty_label=_("Any outcome"))
    since = django_filters.DateFilter(field_name="created_at", lookup_expr="date__gte")
    until = django_filters.DateFilter(field_name="created_at", lookup_expr="date__lte")

    class Meta:
        model = AuditEntry
        fields = ("q", "outcome", "since", "until")

    def search(self, rows: QuerySet[AuditEntry], name: str, value: str) -> QuerySet[AuditEntry]:
        return rows.filter(
            Q(actor__icontains=value) | Q(action__icontains=value) | Q(target__icontains=value)
        )


def visible_entries(principal: Principal) -> QuerySet[AuditEntry]:
    """Of whole tenants for those who may audit them, else of the spaces that they may audit."""
    if principal.everything:
        return AuditEntry.objects.all()
    return AuditEntry.objects.filter(
        Q(tenant__in=principal.tenants(Action.AUDIT)) | Q(space__in=principal.spaces(Action.AUDIT))
    )


def audit(request: ConsoleRequest) -> HttpResponseBase:
    rows = visible_entries(request.principal).select_related("space")
    filtered = AuditFilter(request.GET, queryset=rows)
    if request.GET.get("format") in ("csv", "json"):
        return _export(request, filtered.qs)
    return page(
        request,
        "audit/list.html",
        {
            "entries": Paginator(filtered.qs, 50).get_page(request.GET.get("page")),
            "filter": filtered,
        },
        area="audit",
    )


def _export(request: HttpRequest, rows: QuerySet[AuditEntry]) -> StreamingHttpResponse:
    if request.GET["format"] == "csv":
        body, kind = _csv(rows), "text/csv; charset=utf-8"
    else:
        body, kind = _json(rows), "application/json"
    response = StreamingHttpResponse(body, content_type=kind)
    name = f"audit.{request.GET['format']}"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _values(entry: AuditEntry) -> list[str]:
    return [
        entry.created_at.isoformat(),
        entry.actor,
        entry.action,
        entry.target,
        entry.outcome,
        entry.space.slug if entry.space else "",
        entry.address or "",
        entry.request_id,
        json.dumps(entry.details, ensure_ascii=False),
    ]


class _Echo:
    def write(self, text: str) -> str:
        return text


def _csv(rows: QuerySet[AuditEntry]) -> Iterator[str]:
    writer = csv.writer(_Echo())
    yield writer.writerow(COLUMNS)
    for entry in rows.iterator(chunk_size=500):
        # A leading = + - @ would be a formula in a spreadsheet.
        yield writer.writerow(
            f"'{value}" if value[:1] in ("=", "+", "-", "@") else value for value in _values(entry)
        )


def _json(rows: QuerySet[AuditEntry]) -> Iterator[str]:
    yield "["
    for index, entry in enumerate(rows.iterator(chunk_size=500)):
        row = dict(zip(COLUMNS, _values(entry), strict=True)) | {"details": entry.details}
        yield ("" if index == 0 else ",\n") + json.dumps(row, ensure_ascii=False)
    yield "]\n"
