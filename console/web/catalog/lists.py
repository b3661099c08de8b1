"""The list of skills: the newest version of each, or every version."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpResponseBase
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, ngettext_lazy

from console.tenants.access import Action
from console.tenants.models import Space
from console.web.lists import (
    BulkAction,
    ChoiceFilter,
    Column,
    Job,
    ListFilter,
    ListPage,
    Owner,
    SearchFilter,
    SinceFilter,
    UntilFilter,
    maker,
    others,
)
from console.web.requests import ConsoleRequest
from skills.models import SkillVersion
from skills.services import archive_skill

__all__ = ["CATALOG", "catalog"]

Versions = QuerySet[SkillVersion]


class CatalogFilter(ListFilter):
    at_hand = ("q", "state", "versions")

    q = SearchFilter("skill__name", "description", label=gettext_lazy("Name or what it does"))
    state = ChoiceFilter(
        choices=[("archived", gettext_lazy("archived"))],
        label=gettext_lazy("State"),
        any_label=gettext_lazy("In the catalog"),
        method="in_state",
    )
    versions = ChoiceFilter(
        choices=[("all", gettext_lazy("all versions"))],
        label=gettext_lazy("Versions"),
        any_label=gettext_lazy("Newest versions"),
        method="of_versions",
    )
    since = SinceFilter(field_name="created_at", label=gettext_lazy("Uploaded since"))
    until = UntilFilter(field_name="created_at", label=gettext_lazy("Uploaded until"))

    def filter_queryset(self, queryset: Versions) -> Versions:
        """Unless asked for, neither what is archived nor what has a newer version."""
        rows = super().filter_queryset(queryset)
        values = self.form.cleaned_data
        if not values.get("state"):
            rows = rows.filter(skill__archived_at=None)
        if not values.get("versions"):
            newest = SkillVersion.objects.filter(skill=OuterRef("skill")).order_by("-number")
            rows = rows.filter(pk=Subquery(newest.values("pk")[:1]))
        return rows

    def in_state(self, rows: Versions, name: str, value: str) -> Versions:
        return rows.filter(skill__archived_at__isnull=False)

    def of_versions(self, rows: Versions, name: str, value: str) -> Versions:
        return rows


async def _archive(job: Job, row: SkillVersion) -> str:
    await sync_to_async(archive_skill)(skill=row.skill, actor=job.actor)
    return ""


def _if_archived(rows: QuerySet[Any]) -> list[str]:
    skills = rows.order_by().values("skill").distinct()
    serving = Space.objects.filter(
        current_release__items__version__skill__in=rows.values("skill")
    ).distinct()
    return [
        ngettext(
            "%(count)d skill leaves the catalog, with all its versions: no space can install it any more.",
            "%(count)d skills leave the catalog, with all their versions: no space can install them any more.",
            skills.count(),
        )
        % {"count": skills.count()},
        *others(
            _("Spaces that serve a release with one of them, and keep it: %(count)d."),
            serving.count(),
        ),
        _("An upload of the same name brings a skill back."),
    ]


CATALOG = ListPage(
    name="catalog",
    title=gettext_lazy("Skill catalog"),
    template="catalog/list.html",
    rows=lambda principal: (
        SkillVersion.objects.filter(skill__tenant__in=principal.member_of())
        .select_related("skill__tenant", "created_by")
        .defer("inspection")
    ),
    filters=CatalogFilter,
    columns=(
        Column("id", value=lambda row: row.pk),
        Column("name", gettext_lazy("Skill"), lambda row: row.skill.name, sort="skill__name"),
        Column("tenant", value=lambda row: row.skill.tenant.slug),
        Column(
            "version", gettext_lazy("Version"), lambda row: row.number, sort="number", falling=True
        ),
        Column("label"),
        Column("description", gettext_lazy("What it does")),
        Column("file_count", gettext_lazy("Files"), sort="file_count", falling=True, number=True),
        Column("size_bytes", gettext_lazy("Size"), sort="size_bytes", falling=True, number=True),
        Column("created_at", gettext_lazy("Uploaded"), sort="created_at", falling=True),
        Column("created_by", value=maker),
        Column("archived_at", value=lambda row: row.skill.archived_at),
        Column("digest"),
    ),
    sort="name",
    actions=(
        BulkAction(
            name="skill.archive",
            label=gettext_lazy("Archive"),
            right=Action.CATALOG,
            apply=_archive,
            question=ngettext_lazy(
                "Archive %(count)d skill?", "Archive %(count)d skills?", "count"
            ),
            consequences=_if_archived,
        ),
    ),
    owner=lambda row: Owner(tenant_id=row.skill.tenant_id),
)


def catalog(request: ConsoleRequest) -> HttpResponseBase:
    may_upload = request.principal.tenants(Action.CATALOG).exists()
    return CATALOG.respond(request, context={"may_upload": may_upload})
