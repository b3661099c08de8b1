"""The list of backends."""

from __future__ import annotations

from django.db.models import Count, QuerySet
from django.http import HttpResponseBase
from django.utils.translation import gettext_lazy as _

from console.fleet.models import Backend
from console.tenants.access import Action
from console.web.lists import ChoiceFilter, Column, ListFilter, ListPage, SearchFilter
from console.web.requests import ConsoleRequest
from sandboxes import registry

__all__ = ["BACKENDS", "backends"]


class BackendsFilter(ListFilter):
    at_hand = ("q", "provider", "state")

    q = SearchFilter("name", label=_("Name"))
    provider = ChoiceFilter(
        choices=[(kind.name, kind.label) for kind in registry.PROVIDERS.values()],
        label=_("Kind"),
        any_label=_("Any kind"),
    )
    state = ChoiceFilter(
        choices=[
            ("answers", _("answers")),
            ("failing", _("failing")),
            ("unknown", _("not checked")),
            ("cordoned", _("cordoned")),
        ],
        label=_("State"),
        any_label=_("Any state"),
        method="in_state",
    )

    def in_state(self, rows: QuerySet[Backend], name: str, value: str) -> QuerySet[Backend]:
        if value == "cordoned":
            return rows.filter(cordoned_at__isnull=False)
        if value == "failing":
            return rows.exclude(check_error="")
        return rows.filter(check_error="", checked_at__isnull=value == "unknown")


def _state(row: Backend) -> str:
    if row.check_error:
        return "failing"
    return "answers" if row.checked_at else "unknown"


BACKENDS = ListPage(
    name="backends",
    title=_("Backends"),
    template="backends/list.html",
    rows=lambda principal: (
        Backend.objects.filter(tenant__in=principal.tenants())
        .select_related("tenant")
        .defer("settings", "secrets", "capabilities")
        .annotate(space_count=Count("spaces"))
    ),
    filters=BackendsFilter,
    columns=(
        Column("id", value=lambda row: row.pk),
        Column("name", _("Backend"), sort="name"),
        Column("tenant", value=lambda row: row.tenant.slug),
        Column("provider", _("Kind"), sort="provider"),
        Column("state", _("State"), _state),
        Column("check_error"),
        Column("cordoned_at"),
        Column("checked_at", _("Checked"), sort="checked_at", falling=True, nullable=True),
        Column(
            "spaces",
            _("Spaces"),
            lambda row: row.space_count,
            sort="space_count",
            falling=True,
            number=True,
        ),
        Column("created_at"),
    ),
    sort="name",
)


def backends(request: ConsoleRequest) -> HttpResponseBase:
    may_add = request.principal.tenants(Action.MANAGE).exists()
    return BACKENDS.respond(request, context={"may_add": may_add})
