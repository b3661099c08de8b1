"""The list of releases, of all spaces or of one, and deleting many of them."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async
from django.db.models import Count, F, Q, QuerySet, Sum
from django.http import HttpResponseBase
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from console.tenants.access import Action
from console.web.lists import (
    BackendFilter,
    BulkAction,
    ChoiceFilter,
    Column,
    Job,
    ListFilter,
    ListPage,
    Owner,
    SearchFilter,
    SinceFilter,
    SkillFilter,
    SpaceFilter,
    UntilFilter,
    maker,
    others,
)
from console.web.lists.rows import LARGE_OF_BACKENDS, skill_names, skills_in_brief
from console.web.requests import ConsoleRequest
from skills import services
from skills.models import Release, ReleaseSkill, ReleaseState

__all__ = ["RELEASES", "releases"]

_SERVES = Q(pk=F("space__current_release"))


class ReleaseFilter(ListFilter):
    q = SearchFilter(
        "note",
        "problem",
        "snapshot_id",
        "created_by__username",
        label=gettext_lazy("Note, snapshot or person"),
    )
    state = ChoiceFilter(
        choices=[*ReleaseState.choices, ("serves", gettext_lazy("Serves now"))],
        label=gettext_lazy("State"),
        any_label=gettext_lazy("Any state"),
        method="in_state",
    )
    space = SpaceFilter()
    backend = BackendFilter()
    skill = SkillFilter(ReleaseSkill, "release")
    since = SinceFilter(field_name="created_at", label=gettext_lazy("Made since"))
    until = UntilFilter(field_name="created_at", label=gettext_lazy("Made until"))

    def in_state(self, rows: QuerySet[Release], name: str, value: str) -> QuerySet[Release]:
        return rows.filter(_SERVES) if value == "serves" else rows.filter(state=value)


async def _delete(job: Job, row: Release) -> str:
    await sync_to_async(services.delete_release)(release=row, actor=job.actor)
    return ""


def _if_deleted(rows: QuerySet[Any]) -> list[str]:
    live = Count("sessions", filter=Q(sessions__state__in=["active", "paused"]), distinct=True)
    needed = rows.annotate(live=live).filter(
        _SERVES | Q(pk=F("space__candidate_release")) | Q(live__gt=0)
    )
    size = rows.exclude(pk__in=needed.values("pk")).aggregate(size=Sum("size_bytes"))["size"]
    return [
        _(
            "The snapshots are deleted at their providers, %(size)s in all, for good: nothing can be rolled "
            "back to them. The rows stay as history."
        )
        % {"size": filesizeformat(size or 0)},
        *others(
            _("Serving, a candidate or carrying sessions just now, so refused: %(count)d."),
            needed.count(),
        ),
    ]


RELEASES = ListPage(
    name="releases",
    title=gettext_lazy("Releases"),
    template="releases/list.html",
    rows=lambda principal: (
        Release.objects.filter(space__in=principal.spaces())
        .select_related("space", "backend", "created_by", "parent")
        .prefetch_related(skills_in_brief(ReleaseSkill, "release"))
        .defer("sizes", "packages", "parent__sizes", "parent__packages", *LARGE_OF_BACKENDS)
    ),
    filters=ReleaseFilter,
    columns=(
        Column("id", value=lambda row: row.pk),
        Column(
            "release",
            gettext_lazy("Release"),
            lambda row: row.generation,
            sort="generation",
            falling=True,
        ),
        Column("space", gettext_lazy("Space"), lambda row: row.space.slug, sort="space__name"),
        Column("state", gettext_lazy("State"), sort="state"),
        Column("serves", value=lambda row: row.pk == row.space.current_release_id),
        Column("skills", gettext_lazy("Skills"), skill_names),
        Column(
            "size_bytes",
            gettext_lazy("Size"),
            sort="size_bytes",
            falling=True,
            nullable=True,
            number=True,
        ),
        Column("backend", value=lambda row: row.backend.name),
        Column("snapshot_id"),
        Column("created_at", gettext_lazy("Made"), sort="pk", falling=True),
        Column("created_by", value=maker),
        Column("activated_at"),
        Column("superseded_at"),
        Column("deleted_at"),
        Column("note"),
        Column("problem"),
    ),
    sort="-created_at",
    actions=(
        BulkAction(
            name="release.delete",
            label=gettext_lazy("Delete"),
            right=Action.BUILD,
            apply=_delete,
            question=ngettext_lazy(
                "Delete %(count)d release?", "Delete %(count)d releases?", "count"
            ),
            consequences=_if_deleted,
            irreversible=True,
        ),
    ),
    owner=Owner.by_space,
    label=lambda row: f"{row.space.name}: {row}",
)


def releases(request: ConsoleRequest, space_id: str | None = None) -> HttpResponseBase:
    """Of one space with what served when, else of all."""
    principal = request.principal
    space = principal.space(space_id, Action.VIEW) if space_id else None
    context: dict[str, Any] = {}
    if space is not None:
        context = {
            "promotions": space.promotions.select_related("release", "created_by")[:30],
            "may_build": principal.may(Action.BUILD, tenant_id=space.tenant_id, space_id=space.pk),
        }
    return RELEASES.respond(request, space=space, context=context)
