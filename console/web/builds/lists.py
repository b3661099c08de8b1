"""The list of builds, and what may be done to many of them."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async
from django.db.models import QuerySet
from django.http import HttpResponseBase
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from console.tenants.access import Action
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
    SkillFilter,
    SpaceFilter,
    UntilFilter,
    maker,
    others,
)
from console.web.lists.rows import skill_names, skills_in_brief
from console.web.requests import ConsoleRequest
from skills import services
from skills.models import Build, BuildSkill, BuildState, BuildTrigger

__all__ = ["BUILDS", "builds"]


class BuildFilter(ListFilter):
    q = SearchFilter(
        "id", "note", "error", "created_by__username", label=gettext_lazy("Note, error or person")
    )
    state = ChoiceFilter(
        choices=BuildState.choices, label=gettext_lazy("State"), any_label=gettext_lazy("Any state")
    )
    space = SpaceFilter()
    trigger = ChoiceFilter(
        choices=BuildTrigger.choices,
        label=gettext_lazy("Why"),
        any_label=gettext_lazy("Any reason"),
    )
    skill = SkillFilter(BuildSkill, "build")
    since = SinceFilter(field_name="created_at", label=gettext_lazy("Asked since"))
    until = UntilFilter(field_name="created_at", label=gettext_lazy("Asked until"))


async def _cancel(job: Job, row: Build) -> str:
    await sync_to_async(services.cancel_build)(build=row, actor=job.actor)
    return ""


async def _retry(job: Job, row: Build) -> str:
    await sync_to_async(services.retry_build)(build=row, actor=job.actor)
    return ""


def _if_cancelled(rows: QuerySet[Any]) -> list[str]:
    chosen, unfinished = rows.count(), rows.filter(pk__in=Build.objects.unfinished()).count()
    return [
        _("Waiting or running: %(count)d. They stop, and what serves now keeps serving.")
        % {"count": unfinished},
        *others(_("Over, so refused: %(count)d."), chosen - unfinished),
    ]


def _if_retried(rows: QuerySet[Any]) -> list[str]:
    chosen = rows.count()
    failed = rows.filter(state__in=[BuildState.FAILED, BuildState.CANCELLED])
    spaces = failed.order_by().values("space").distinct().count()
    count = failed.count()
    return [
        _(
            "Failed or cancelled: %(count)d, in %(spaces)d space(s). Each space builds one after the other, "
            "and each that succeeds becomes what its new sessions start from."
        )
        % {"count": count, "spaces": spaces},
        *others(_("Neither failed nor cancelled, so refused: %(count)d."), chosen - count),
    ]


def _took_s(row: Build) -> float | None:
    if row.started_at is None or row.finished_at is None:
        return None
    return round((row.finished_at - row.started_at).total_seconds(), 1)


BUILDS = ListPage(
    name="builds",
    title=gettext_lazy("Builds"),
    template="builds/list.html",
    rows=lambda principal: (
        Build.objects.filter(space__in=principal.spaces())
        .select_related("space", "created_by")
        .prefetch_related(skills_in_brief(BuildSkill, "build"))
        .defer("report", "steps", "changes", "rollout_sessions")
    ),
    filters=BuildFilter,
    columns=(
        Column("id", value=lambda row: row.pk),
        Column("trigger", gettext_lazy("Build"), sort="trigger"),
        Column("space", gettext_lazy("Space"), lambda row: row.space.slug, sort="space__name"),
        Column("state", gettext_lazy("State"), sort="state"),
        Column("skills", gettext_lazy("Skills"), skill_names),
        Column("took_s", gettext_lazy("Took"), _took_s),
        Column(
            "created_by",
            gettext_lazy("By"),
            maker,
            sort="created_by__username",
            nullable=True,
        ),
        Column("created_at", gettext_lazy("Asked"), sort="pk", falling=True),
        Column("started_at"),
        Column("finished_at"),
        Column("note"),
        Column("error_code"),
        Column("error"),
    ),
    sort="-created_at",
    actions=(
        BulkAction(
            name="build.cancel",
            label=gettext_lazy("Cancel"),
            right=Action.OPERATE,
            apply=_cancel,
            question=ngettext_lazy("Cancel %(count)d build?", "Cancel %(count)d builds?", "count"),
            consequences=_if_cancelled,
        ),
        BulkAction(
            name="build.retry",
            label=gettext_lazy("Try again"),
            right=Action.BUILD,
            apply=_retry,
            question=ngettext_lazy(
                "Try %(count)d build again?", "Try %(count)d builds again?", "count"
            ),
            consequences=_if_retried,
            danger=False,
        ),
    ),
    owner=Owner.by_space,
    label=lambda row: f"{row.space.name}: {row.get_trigger_display()} {row.pk}",
)


def builds(request: ConsoleRequest, space_id: str | None = None) -> HttpResponseBase:
    space = request.principal.space(space_id, Action.VIEW) if space_id else None
    return BUILDS.respond(request, space=space)
