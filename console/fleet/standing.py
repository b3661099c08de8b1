"""How spaces and backends stand: what serves, what runs, what lags behind. For overviews.

A fixed number of queries, however many spaces and sessions there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Subquery
from django.utils import timezone

from console.fleet.models import (
    GATEWAY_ORIGIN,
    Backend,
    ReconcileReport,
    Session,
    SessionState,
    Verification,
)
from console.fleet.samples import COUNTED, Counted
from console.policies.models import NetworkPolicyRevision
from console.tenants.models import Space, Tenant
from skills.models import Build, BuildState, Release, ReleaseState

__all__ = [
    "BackendStanding",
    "SpaceStanding",
    "failed_last",
    "stand_of_backends",
    "stand_of_spaces",
]

CHECK_STALE = timedelta(minutes=10)
"""Backends are checked every minute: after this, nobody does."""
VERIFICATION_STALE = timedelta(days=30)


@dataclass(slots=True, kw_only=True)
class BackendStanding:
    """`is_whole`: all of it may be seen, not only what one's own spaces have there. `report` is the last whole
    comparison, `verification` the last run of the eight points that ended."""

    backend: Backend
    is_whole: bool
    report: ReconcileReport | None = None
    verification: Verification | None = None
    sessions: Counted = field(default_factory=Counted)
    """Of the spaces that were asked for."""

    @property
    def orphans(self) -> int:
        return self.report.orphaned - self.report.deleted if self.report else 0

    @property
    def is_check_stale(self) -> bool:
        checked_at = self.backend.checked_at
        return checked_at is None or checked_at < timezone.now() - CHECK_STALE

    @property
    def state(self) -> str:
        """failing, unknown (not checked lately) or ok."""
        if self.backend.check_error:
            return "failing"
        return "unknown" if self.is_check_stale else "ok"

    @property
    def verified(self) -> str:
        """never, failed, moved (another account was verified), stale or ok."""
        run = self.verification
        if run is None or run.finished_at is None:
            return "never"
        if run.state == "failed":
            return "failed"
        if run.fingerprint != self.backend.fingerprint:
            return "moved"
        return "stale" if run.finished_at < timezone.now() - VERIFICATION_STALE else "ok"


@dataclass(slots=True, kw_only=True)
class SpaceStanding:
    """`behind_policy` and `behind_release` count live sessions that a new sandbox would bring up to date."""

    space: Space
    sessions: Counted = field(default_factory=Counted)
    behind_policy: int = 0
    behind_release: int = 0
    policy_number: int = 0
    last_build: str = ""
    """The id of the build that ended last."""
    last_build_state: str = ""
    last_build_at: datetime | None = None

    @property
    def last_build_label(self) -> str:
        return str(BuildState(self.last_build_state).label) if self.last_build_state else ""

    @property
    def release_state(self) -> str:
        """none, ok, broken, or silent: it exists, and can't start on the space's backend."""
        release = self.space.current_release
        if release is None:
            return "none"
        if release.usable_on(self.space.backend):
            return "ok"
        return "broken" if release.state == ReleaseState.BROKEN else "silent"


def stand_of_backends(
    *, spaces: QuerySet[Space], tenants: QuerySet[Tenant]
) -> list[BackendStanding]:
    """The backends of these tenants, and those that these spaces run on. Three queries."""
    ended = Verification.objects.filter(backend=OuterRef("pk"), finished_at__isnull=False)
    whole = ReconcileReport.objects.filter(
        backend=OuterRef("pk"), finished_at__isnull=False, aborted=""
    )
    rows = list(
        Backend.objects.filter(Q(tenant__in=tenants) | Q(pk__in=spaces.values("backend")))
        .annotate(
            is_whole=Exists(tenants.filter(pk=OuterRef("tenant"))),
            last_verification=Subquery(ended.values("pk")[:1]),
            last_report=Subquery(whole.values("pk")[:1]),
        )
        .select_related("tenant")
    )
    verifications = Verification.objects.defer("points").in_bulk(
        [row.last_verification for row in rows if row.last_verification]
    )
    reports = ReconcileReport.objects.defer("findings").in_bulk(
        [row.last_report for row in rows if row.last_report and row.is_whole]
    )
    return [
        BackendStanding(
            backend=row,
            is_whole=row.is_whole,
            report=reports.get(row.last_report or ""),
            verification=verifications.get(row.last_verification or ""),
        )
        for row in rows
    ]


def stand_of_spaces(
    *, spaces: QuerySet[Space], backends: Collection[BackendStanding]
) -> list[SpaceStanding]:
    """Each of these spaces; `backends` are all that they run on, whose sessions are filled in. Two queries."""
    newest = NetworkPolicyRevision.objects.filter(space=OuterRef("pk")).order_by("-number")
    ended = Build.objects.filter(space=OuterRef("pk"), finished_at__isnull=False).order_by(
        "-finished_at"
    )
    rows = (
        spaces.select_related("tenant", "current_release", "candidate_release")
        .defer("current_release__packages", "candidate_release__packages")
        .annotate(
            newest_policy=Subquery(newest.values("pk")[:1]),
            newest_number=Subquery(newest.values("number")[:1]),
            last_build=Subquery(ended.values("pk")[:1]),
            last_build_state=Subquery(ended.values("state")[:1]),
            last_build_at=Subquery(ended.values("finished_at")[:1]),
        )
    )
    by_backend = {standing.backend.pk: standing for standing in backends}
    found: dict[str, SpaceStanding] = {}
    policies: dict[str, str] = {}
    for row in rows:
        if row.backend_id not in by_backend:
            continue  # it moved there a moment ago
        row.backend = by_backend[row.backend_id].backend
        policies[row.pk] = row.newest_policy or ""
        found[row.pk] = SpaceStanding(
            space=row,
            policy_number=row.newest_number or 0,
            last_build=row.last_build or "",
            last_build_state=row.last_build_state or "",
            last_build_at=row.last_build_at,
        )
    _count_sessions(spaces, found, policies, by_backend)
    return list(found.values())


def _count_sessions(
    spaces: QuerySet[Space],
    found: dict[str, SpaceStanding],
    policies: dict[str, str],
    backends: dict[str, BackendStanding],
) -> None:
    groups = (
        Session.objects.filter(space__in=spaces, state__in=COUNTED)
        .order_by()
        .values_list("space_id", "backend_id", "state", "policy_id", "release_id")
        .annotate(
            count=Count("pk"),
            # A client of the gateway chose its own image and narrowed its own network.
            clients=Count("pk", filter=Q(created_by__startswith=f"{GATEWAY_ORIGIN},")),
        )
    )
    offered = {pk: _releases(standing.space) for pk, standing in found.items()}
    by_space: dict[str, Counted] = defaultdict(Counted)
    by_backend: dict[str, Counted] = defaultdict(Counted)
    for space_id, backend_id, state, policy_id, release_id, count, clients in groups:
        standing = found.get(space_id)
        if standing is None:
            continue
        by_space[space_id] += Counted(**{state: count})
        by_backend[backend_id] += Counted(**{state: count})
        if state in (SessionState.ACTIVE, SessionState.PAUSED):
            if policy_id != policies[space_id]:
                standing.behind_policy += count - clients
            if release_id not in offered[space_id]:
                standing.behind_release += count - clients
    for pk, counted in by_space.items():
        found[pk].sessions = counted
    for pk, counted in by_backend.items():
        if pk in backends:
            backends[pk].sessions = counted


def _releases(space: Space) -> set[str | None]:
    """The ids of what a new sandbox of the space may start from; None is the base template."""

    def start(release: Release | None) -> str | None:
        return release.pk if release is not None and release.usable_on(space.backend) else None

    offered = {start(space.current_release)}
    if candidate := start(space.candidate_release):
        offered.add(candidate)
    return offered


def failed_last(standings: Iterable[SpaceStanding], *, within: timedelta) -> list[SpaceStanding]:
    """Those whose last build failed, lately."""
    since = timezone.now() - within
    return [
        standing
        for standing in standings
        if standing.last_build_state == BuildState.FAILED
        and standing.last_build_at is not None
        and standing.last_build_at > since
    ]
