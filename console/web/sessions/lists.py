"""The list of sessions, and what may be done to many of them."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async
from django.db.models import Count, QuerySet
from django.http import HttpResponseBase
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from console.audit.services import record
from console.fleet import renewal
from console.fleet import sessions as live
from console.fleet.models import Session, SessionQuerySet, SessionState
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
    SpaceFilter,
    UntilFilter,
    WholeNumberFilter,
    others,
)
from console.web.lists.rows import LARGE_OF_BACKENDS, LARGE_OF_RELEASES
from console.web.requests import ConsoleRequest
from sandboxes.errors import Conflict

__all__ = ["SESSIONS", "sessions"]

_ALIVE = (SessionState.ACTIVE, SessionState.PAUSED)


class SessionFilter(ListFilter):
    q = SearchFilter(
        "session_id", "sandbox_id", "created_by", label=gettext_lazy("Session, sandbox or maker")
    )
    state = ChoiceFilter(
        choices=SessionState.choices,
        label=gettext_lazy("State"),
        any_label=gettext_lazy("Any state"),
    )
    space = SpaceFilter()
    backend = BackendFilter()
    release = WholeNumberFilter(
        field_name="release__generation",
        label=gettext_lazy("Release number"),
    )
    drift = ChoiceFilter(
        choices=[
            ("any", gettext_lazy("older than its space")),
            ("release", gettext_lazy("on an older release")),
            ("policy", gettext_lazy("under an older policy")),
            ("none", gettext_lazy("up to date")),
        ],
        label=gettext_lazy("Up to date"),
        any_label=gettext_lazy("Either"),
        method="drifted",
    )
    used_before = UntilFilter(field_name="used_at", label=gettext_lazy("Last used until"))
    used_since = SinceFilter(field_name="used_at", label=gettext_lazy("Used since"))

    def drifted(self, rows: SessionQuerySet, name: str, value: str) -> SessionQuerySet:
        return rows.filter(state__in=_ALIVE).drifted(value)


async def _whole(row: Session) -> Session:
    """With what reaches its sandbox, of which lists read nothing."""
    return await Session.objects.select_related("space__backend", "backend").aget(pk=row.pk)


async def _pause(job: Job, row: Session) -> str:
    if row.state not in _ALIVE:
        raise Conflict(_("It has no sandbox, so there is nothing to pause."))
    await live.pause(runtime=job.runtime, session=await _whole(row), actor=job.actor)
    return await _noted(job, "session.pause", row)


async def _resume(job: Job, row: Session) -> str:
    if row.state not in _ALIVE:
        raise Conflict(
            _("It has no sandbox, so there is nothing to wake; its next call gets a new one.")
        )
    await renewal.resume(runtime=job.runtime, session=await _whole(row), actor=job.actor)
    return await _noted(job, "session.resume", row)


async def _destroy(job: Job, row: Session) -> str:
    if row.state == SessionState.DESTROYED:
        return _("It was destroyed before.")
    whole = await _whole(row)
    await live.destroy(
        runtime=job.runtime, space=whole.space, session_id=row.session_id, actor=job.actor
    )
    return await _noted(job, "session.destroy", row)


async def _noted(job: Job, action: str, row: Session) -> str:
    await sync_to_async(record)(
        actor=job.actor,
        action=action,
        target=row.session_id,
        tenant_id=row.space.tenant_id,
        space_id=row.space_id,
    )
    return ""


def _by_state(rows: QuerySet[Any]) -> tuple[int, int, int]:
    """How many run, how many are paused, and how many there are in all."""
    states = dict(rows.order_by().values_list("state").annotate(Count("pk")))
    running, paused = states.get(SessionState.ACTIVE, 0), states.get(SessionState.PAUSED, 0)
    return running, paused, sum(states.values())


def _if_resumed(rows: QuerySet[Any]) -> list[str]:
    _running, paused, chosen = _by_state(rows)
    return [
        _("Paused: %(count)d. They go on where they were, and use their backend's memory again.")
        % {"count": paused},
        *others(_("Not paused, so nothing happens to them: %(count)d."), chosen - paused),
    ]


def _if_paused(rows: QuerySet[Any]) -> list[str]:
    running, _paused, chosen = _by_state(rows)
    return [
        _(
            "Running: %(count)d. They are frozen with their memory, commands in them stop, and the next call "
            "wakes each."
        )
        % {"count": running},
        *others(_("Not running, so nothing happens to them: %(count)d."), chosen - running),
    ]


def _if_destroyed(rows: QuerySet[Any]) -> list[str]:
    running, paused, chosen = _by_state(rows)
    return [
        _(
            "Running: %(running)d, paused: %(paused)d. Their sandboxes are deleted with every file in them, "
            "for good. Commands in them end now; attachments are forgotten."
        )
        % {"running": running, "paused": paused},
        _("If the platform asks for one of these sessions again, it gets a new, empty sandbox."),
        *others(_("Without a sandbox already: %(count)d."), chosen - running - paused),
    ]


SESSIONS = ListPage(
    name="sessions",
    title=gettext_lazy("Sessions"),
    template="sessions/list.html",
    rows=lambda principal: (
        Session.objects.filter(space__in=principal.spaces())
        .select_related("space", "release", "backend", "policy")
        .defer(*LARGE_OF_BACKENDS, *LARGE_OF_RELEASES)
    ),
    filters=SessionFilter,
    columns=(
        Column("id", value=lambda row: row.pk),
        Column("session_id", gettext_lazy("Session"), sort="session_id"),
        Column("space", gettext_lazy("Space"), lambda row: row.space.slug, sort="space__name"),
        Column("state", gettext_lazy("State"), sort="state"),
        Column(
            "release",
            gettext_lazy("Release"),
            lambda row: row.release and row.release.generation,
            sort="release__generation",
            falling=True,
            nullable=True,
        ),
        Column("policy", value=lambda row: row.policy and row.policy.number),
        Column(
            "backend", gettext_lazy("Backend"), lambda row: row.backend.name, sort="backend__name"
        ),
        Column("sandbox_id"),
        Column("created_by", gettext_lazy("By"), sort="created_by"),
        Column("created_at", gettext_lazy("Started"), sort="created_at", falling=True),
        Column("used_at", gettext_lazy("Used"), sort="used_at", falling=True),
        Column("destroyed_at"),
    ),
    sort="-used_at",
    actions=(
        BulkAction(
            name="session.pause",
            label=gettext_lazy("Pause"),
            right=Action.OPERATE,
            apply=_pause,
            question=ngettext_lazy(
                "Pause %(count)d session?", "Pause %(count)d sessions?", "count"
            ),
            consequences=_if_paused,
            danger=False,
        ),
        BulkAction(
            name="session.resume",
            label=gettext_lazy("Wake"),
            right=Action.RUN,
            apply=_resume,
            question=ngettext_lazy("Wake %(count)d session?", "Wake %(count)d sessions?", "count"),
            consequences=_if_resumed,
            danger=False,
        ),
        BulkAction(
            name="session.destroy",
            label=gettext_lazy("Destroy"),
            right=Action.RUN,
            apply=_destroy,
            question=ngettext_lazy(
                "Destroy %(count)d session?", "Destroy %(count)d sessions?", "count"
            ),
            consequences=_if_destroyed,
            irreversible=True,
        ),
    ),
    owner=Owner.by_space,
)


def sessions(request: ConsoleRequest, space_id: str | None = None) -> HttpResponseBase:
    principal = request.principal
    space = principal.space(space_id, Action.VIEW) if space_id else None
    may_run = space and principal.may(Action.RUN, tenant_id=space.tenant_id, space_id=space.pk)
    return SESSIONS.respond(request, space=space, context={"may_run": may_run})
