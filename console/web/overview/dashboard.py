"""What the overviews show, of all spaces that a person may see or of one: a fixed number of queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Subquery
from django.utils import timezone

from console.audit.models import AuditChain
from console.fleet.models import Backend, Session
from console.fleet.samples import Counted
from console.fleet.standing import (
    BackendStanding,
    SpaceStanding,
    stand_of_backends,
    stand_of_spaces,
)
from console.tenants.access import Action, Principal
from console.tenants.account_models import TotpDevice
from console.tenants.models import ApiKey, Membership, Space, Tenant
from console.web.charts import Chart
from console.web.overview.needs import Found, Need, needs
from console.web.overview.panels import (
    PERIODS,
    Period,
    builds_charts,
    sessions_charts,
)
from skills.models import Build, BuildState
from skills.services import BuildPeriod, Stuck, build_figures, stuck

__all__ = ["Dashboard", "Idle", "dashboard"]

_RECENT = 6
_KEYS_WITHIN = timedelta(days=7)


@dataclass(slots=True, kw_only=True)
class Idle:
    """What nobody uses just now, and an estimate of what it costs an hour, by currency. `orphans` is None where
    only parts of the backends may be seen; `unpriced` are backends with idle sandboxes and no price."""

    paused: int = 0
    orphans: int | None = None
    hourly: dict[str, Decimal] = field(default_factory=dict)
    unpriced: list[Backend] = field(default_factory=list)

    @property
    def costs(self) -> list[tuple[str, Decimal, Decimal]]:
        """Currency, an hour, a day."""
        return [(currency, cost, cost * 24) for currency, cost in sorted(self.hourly.items())]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """`tenants` are those in which the person has a role, each with how many `catalogued` skills it has."""

    period: Period
    spaces: list[SpaceStanding]
    backends: list[BackendStanding]
    tenants: list[Tenant]
    sessions: Counted
    idle: Idle
    builds: list[tuple[Build, Stuck | None]]
    """The unfinished ones and the latest."""
    day: BuildPeriod
    sessions_charts: list[Chart]
    builds_charts: list[Chart]
    needs: list[Need]

    @property
    def periods(self) -> Iterable[Period]:
        return PERIODS.values()

    @property
    def running(self) -> int:
        return sum(build.state == BuildState.RUNNING for build, _stuck in self.builds)

    @property
    def queued(self) -> int:
        return sum(build.state == BuildState.QUEUED for build, _stuck in self.builds)

    @property
    def skills(self) -> int:
        return sum(getattr(tenant, "catalogued", 0) for tenant in self.tenants)

    @property
    def whole_backends(self) -> list[BackendStanding]:
        """Those whose health this person may see."""
        return [standing for standing in self.backends if standing.is_whole]


def dashboard(
    principal: Principal, *, period: Period, space: Space | None = None, now: datetime | None = None
) -> Dashboard:
    """Of one space, or of all that the principal sees."""
    now = now or timezone.now()
    if space is None:
        spaces, whole = principal.spaces(), principal.tenants()
        tenants = list(_tenants(principal))
        keys = _expiring(principal, now)
    else:
        spaces, whole = Space.objects.filter(pk=space.pk), Tenant.objects.none()
        tenants, keys = [], []
    backends = stand_of_backends(spaces=spaces, tenants=whole)
    standings = stand_of_spaces(spaces=spaces, backends=backends)
    sessions = sum((standing.sessions for standing in standings), Counted())
    builds = _builds(spaces, standings)
    figures = build_figures(spaces=spaces, days=period.days, now=now)
    found = Found(
        principal=principal,
        spaces=standings,
        backends=backends,
        builds=[(build, state) for build, state in builds if not build.is_finished],
        keys=keys,
        chains=_broken_chains(principal) if space is None else (),
        tenants=[tenant for tenant in tenants if principal.may(Action.MANAGE, tenant_id=tenant.pk)],
    )
    return Dashboard(
        period=period,
        spaces=standings,
        backends=backends,
        tenants=tenants,
        sessions=sessions,
        idle=_idle(backends),
        builds=builds,
        day=figures.day,
        sessions_charts=sessions_charts(
            spaces=spaces, backends=backends, sessions=sessions, period=period, now=now
        ),
        builds_charts=builds_charts(figures, period, now),
        needs=needs(found),
    )


def _builds(
    spaces: QuerySet[Space], standings: Sequence[SpaceStanding]
) -> list[tuple[Build, Stuck | None]]:
    """Unfinished ones first, in the order in which they run, then the latest."""
    unfinished = [BuildState.QUEUED, BuildState.RUNNING]
    latest = Build.objects.filter(space__in=spaces).order_by("-pk").values("pk")[:_RECENT]
    rows = list(
        Build.objects.filter(Q(state__in=unfinished, space__in=spaces) | Q(pk__in=Subquery(latest)))
        .select_related("space")
        .defer("report", "changes", "error")
        .order_by("pk")
    )
    ended_at = {standing.space.pk: standing.last_build_at for standing in standings}
    seen: set[str] = set()
    found: list[tuple[Build, Stuck | None]] = []
    for build in rows:
        if build.is_finished:
            continue
        is_next = build.space_id not in seen
        seen.add(build.space_id)
        next_since = ended_at.get(build.space_id) or build.created_at
        found.append((build, stuck(build, next_since=next_since) if is_next else None))
    ended = [(build, None) for build in reversed(rows) if build.is_finished]
    return [*found, *ended]


def _idle(backends: Sequence[BackendStanding]) -> Idle:
    idle = Idle()
    for standing in backends:
        orphans = standing.orphans if standing.is_whole else 0
        if standing.is_whole:
            idle.orphans = (idle.orphans or 0) + orphans
        idle.paused += standing.sessions.paused
        count, backend = orphans + standing.sessions.paused, standing.backend
        if not count:
            continue
        if backend.hourly_cost is None:
            idle.unpriced.append(backend)
        else:
            before = idle.hourly.get(backend.currency, Decimal())
            idle.hourly[backend.currency] = before + count * backend.hourly_cost
    return idle


def _tenants(principal: Principal) -> QuerySet[Tenant]:
    lacking = (
        Membership.objects.filter(
            tenant=OuterRef("pk"), tenant__two_step_required=True, user__is_active=True
        )
        .exclude(Exists(TotpDevice.objects.filter(user=OuterRef("user"), confirmed=True)))
        .order_by()
        .values("tenant")
        .annotate(count=Count("user", distinct=True))
        .values("count")
    )
    return principal.member_of().annotate(
        catalogued=Count("skills", filter=Q(skills__archived_at=None)),
        without_two_step=Subquery(lacking),
    )


def _expiring(principal: Principal, now: datetime) -> list[ApiKey]:
    if not _holds(principal, Action.MANAGE):
        return []
    mine: Any = Q(tenant__in=principal.tenants(Action.MANAGE)) | Q(
        space__in=principal.spaces(Action.MANAGE)
    )
    return list(
        ApiKey.objects.filter(
            mine, revoked_at=None, expires_at__gt=now, expires_at__lt=now + _KEYS_WITHIN
        ).order_by("expires_at")
    )


def _broken_chains(principal: Principal) -> list[AuditChain]:
    """Audit logs that the last verification found changed, of those that the person may read."""
    if not _holds(principal, Action.AUDIT):
        return []
    mine = Q(key__in=principal.tenants(Action.AUDIT).values("pk"))
    if principal.everything:
        mine |= Q(key="")
    return list(AuditChain.objects.filter(mine, broken__gt=0).order_by("key"))


def _holds(principal: Principal, action: Action) -> bool:
    """Anywhere at all; asks nothing of the database."""
    return principal.everything or any(action in grant.actions for grant in principal.grants)


def recent_sessions(spaces: QuerySet[Space]) -> QuerySet[Session]:
    """The latest used."""
    return Session.objects.filter(space__in=spaces).select_related("space", "release")[:_RECENT]
