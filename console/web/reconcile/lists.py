"""The list of the reconciler's reports."""

from __future__ import annotations

from django.db.models import Q, QuerySet
from django.http import HttpResponseBase
from django.utils.translation import gettext_lazy as _

from console.fleet.models import Backend, ReconcileReport
from console.tenants.access import Action
from console.web.lists import (
    BackendFilter,
    ChoiceFilter,
    Column,
    ListFilter,
    ListPage,
    SearchFilter,
    SinceFilter,
    UntilFilter,
)
from console.web.lists.rows import LARGE_OF_BACKENDS
from console.web.requests import ConsoleRequest

__all__ = ["RECONCILE", "reports"]


class ReportFilter(ListFilter):
    at_hand = ("backend", "found", "state")

    backend = BackendFilter()
    found = ChoiceFilter(
        choices=[
            ("something", _("something nobody's or doubtful")),
            ("drifted", _("sandboxes older than their space")),
            ("deleted", _("deleted something")),
            ("nothing", _("nothing")),
        ],
        label=_("Found"),
        any_label=_("Whatever it found"),
        method="that_found",
    )
    state = ChoiceFilter(
        choices=[
            ("unfinished", _("under way")),
            ("done", _("done")),
            ("failed", _("not whole")),
        ],
        label=_("State"),
        any_label=_("Any state"),
        method="in_state",
    )
    kind = ChoiceFilter(
        choices=[("dry", _("dry run")), ("real", _("real run"))],
        label=_("Kind"),
        any_label=_("Any kind"),
        method="of_kind",
    )
    actor = SearchFilter("actor", label=_("By"))
    since = SinceFilter(field_name="created_at", label=_("Since"))
    until = UntilFilter(field_name="created_at", label=_("Until"))

    def that_found(
        self, rows: QuerySet[ReconcileReport], name: str, value: str
    ) -> QuerySet[ReconcileReport]:
        doubtful = Q(orphaned__gt=0) | Q(stuck__gt=0) | Q(unverifiable__gt=0)
        return rows.filter(
            {
                "something": doubtful,
                "drifted": Q(drifted__gt=0),
                "deleted": Q(deleted__gt=0),
                "nothing": ~doubtful & Q(drifted=0, deleted=0),
            }[value]
        )

    def in_state(
        self, rows: QuerySet[ReconcileReport], name: str, value: str
    ) -> QuerySet[ReconcileReport]:
        if value == "unfinished":
            return rows.filter(finished_at=None)
        whole = Q(aborted="")
        return rows.filter(whole if value == "done" else ~whole, finished_at__isnull=False)

    def of_kind(
        self, rows: QuerySet[ReconcileReport], name: str, value: str
    ) -> QuerySet[ReconcileReport]:
        return rows.filter(dry_run=value == "dry")


RECONCILE = ListPage(
    name="reconcile",
    title=_("Reconcile"),
    template="reconcile/list.html",
    rows=lambda principal: (
        ReconcileReport.objects.filter(backend__tenant__in=principal.tenants())
        .select_related("backend")
        .defer("findings", *LARGE_OF_BACKENDS)
    ),
    filters=ReportFilter,
    columns=(
        Column("id", value=lambda row: row.pk),
        Column("created_at", _("Run"), sort="pk", falling=True),
        Column("dry_run"),
        Column("actor"),
        Column("backend", _("Backend"), lambda row: row.backend.name, sort="backend__name"),
        Column("state", _("State")),
        Column("seen", _("Seen"), sort="seen", falling=True, number=True),
        Column("in_use", _("In use"), lambda row: row.bound + row.building, number=True),
        Column("orphaned", _("Nobody's"), sort="orphaned", falling=True, number=True),
        Column("doubtful", _("Doubtful"), lambda row: row.stuck + row.unverifiable, number=True),
        Column("drifted", _("Drifted"), sort="drifted", falling=True, number=True),
        Column("deleted", _("Deleted"), sort="deleted", falling=True, number=True),
        Column("aborted"),
        Column("finished_at"),
    ),
    sort="-created_at",
)


def reports(request: ConsoleRequest) -> HttpResponseBase:
    operable = Backend.objects.filter(tenant__in=request.principal.tenants(Action.OPERATE))
    return RECONCILE.respond(request, context={"operable": operable})
