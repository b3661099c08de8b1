"""The list of spaces."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpResponseBase
from django.utils.translation import gettext_lazy as _

from console.fleet.models import Session, SessionState
from console.tenants.access import Action
from console.tenants.models import Space
from console.web.lists import (
    BackendFilter,
    ChoiceFilter,
    Column,
    ListFilter,
    ListPage,
    SearchFilter,
)
from console.web.lists.rows import LARGE_OF_BACKENDS
from console.web.requests import ConsoleRequest
from skills.models import ReleaseSkill, ReleaseState

__all__ = ["SPACES", "spaces"]


class SpaceListFilter(ListFilter):
    at_hand = ("q", "backend", "release")

    q = SearchFilter("name", "slug", "description", label=_("Name"))
    backend = BackendFilter()
    release = ChoiceFilter(
        choices=[
            ("none", _("none yet")),
            ("candidate", _("with a candidate")),
            ("broken", _("broken")),
        ],
        label=_("Release"),
        any_label=_("Any release"),
        method="serving",
    )

    def serving(self, rows: QuerySet[Space], name: str, value: str) -> QuerySet[Space]:
        if value == "broken":
            return rows.filter(current_release__state=ReleaseState.BROKEN)
        if value == "candidate":
            return rows.filter(candidate_release__isnull=False)
        return rows.filter(current_release=None)


def _number(rows: QuerySet[Any], **of: Any) -> Coalesce:
    """How many rows there are of each; counted apart, so that two counts don't multiply."""
    counted = rows.filter(**of).order_by().values(*of).annotate(number=Count("pk"))
    return Coalesce(Subquery(counted.values("number")), 0)


SPACES = ListPage(
    name="spaces",
    title=_("Spaces"),
    template="spaces/list.html",
    rows=lambda principal: (
        principal.spaces()
        .select_related("tenant", "backend", "current_release")
        .defer(*LARGE_OF_BACKENDS, "current_release__packages", "current_release__sizes")
        .annotate(
            live=_number(Session.objects.filter(state=SessionState.ACTIVE), space=OuterRef("pk")),
            skills=_number(ReleaseSkill.objects.all(), release=OuterRef("current_release")),
        )
    ),
    filters=SpaceListFilter,
    columns=(
        Column("id", value=lambda row: row.pk),
        Column("name", _("Space"), sort="name"),
        Column("slug"),
        Column("tenant", value=lambda row: row.tenant.slug),
        Column("backend", _("Backend"), lambda row: row.backend.name, sort="backend__name"),
        Column(
            "release",
            _("Release"),
            lambda row: row.current_release and row.current_release.generation,
            sort="current_release__generation",
            falling=True,
            nullable=True,
        ),
        Column("skills", _("Skills"), sort="skills", falling=True, number=True),
        Column(
            "running_sessions",
            _("Running sessions"),
            lambda row: row.live,
            sort="live",
            falling=True,
            number=True,
        ),
        Column("created_at"),
    ),
    sort="name",
)


def spaces(request: ConsoleRequest) -> HttpResponseBase:
    may_create = request.principal.tenants(Action.MANAGE).exists()
    return SPACES.respond(request, context={"may_create": may_create})
