"""The audit log: who did what, filtered, and as CSV or JSON."""

from __future__ import annotations

from django.http import HttpResponseBase
from django.utils.translation import gettext_lazy as _

from console.audit.models import AuditEntry, Outcome
from console.tenants.access import Action
from console.web.lists import (
    ChoiceFilter,
    Column,
    ListFilter,
    ListPage,
    SearchFilter,
    SinceFilter,
    SpaceFilter,
    UntilFilter,
)
from console.web.requests import ConsoleRequest

__all__ = ["AUDIT", "audit"]


class AuditFilter(ListFilter):
    at_hand = ("q", "outcome", "since", "until")

    q = SearchFilter(
        "actor", "action", "target", "request_id", label=_("Actor, action, target or request")
    )
    outcome = ChoiceFilter(choices=Outcome.choices, label=_("Outcome"), any_label=_("Any outcome"))
    since = SinceFilter(field_name="created_at", label=_("from"))
    until = UntilFilter(field_name="created_at", label=_("to"))
    actor = SearchFilter("actor", label=_("Who"))
    action = SearchFilter("action", label=_("What"))
    target = SearchFilter("target", label=_("Target"))
    space = SpaceFilter()


AUDIT = ListPage(
    name="audit",
    title=_("Audit log"),
    template="audit/list.html",
    rows=lambda principal: AuditEntry.objects.filter(principal.reach(Action.AUDIT)).select_related(
        "space"
    ),
    filters=AuditFilter,
    columns=(
        Column("created_at", _("When"), sort="pk", falling=True),
        Column("actor", _("Who"), sort="actor"),
        Column("action", _("What"), sort="action"),
        Column("target", _("Target"), sort="target"),
        Column("space", _("Space"), lambda row: row.space.slug if row.space else ""),
        Column("outcome", _("Outcome"), sort="outcome"),
        Column("address"),
        Column("request_id"),
        Column("details", _("Details")),
    ),
    sort="-created_at",
)


def audit(request: ConsoleRequest) -> HttpResponseBase:
    return AUDIT.respond(request)
