"""What needs somebody: each thing with the page on which it is mended, the worst first. Asks nothing of the
database: it reads what the overview has found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.conf import settings
from django.urls import reverse
from django.utils import timezone
from django.utils.timesince import timesince
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from console.audit.models import AuditChain
from console.fleet.models import Backend
from console.fleet.standing import BackendStanding, SpaceStanding, failed_last
from console.tenants.access import Action, Principal
from console.tenants.models import ApiKey, Rollout, Space, Tenant
from console.web.templatetags.skillyard import seconds
from skills.models import Build
from skills.services import Stuck

__all__ = ["Found", "Need", "needs"]

_FAILED_WITHIN = timedelta(days=7)
_RANKS = ("bad", "warn", "info")
_VERIFIED = {
    "failed": gettext_lazy("The last verification of %(name)s failed."),
    "moved": gettext_lazy(
        "The account that %(name)s uses now was never verified: another one was, before."
    ),
    "stale": gettext_lazy("The last verification of %(name)s is more than 30 days old."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the overview has found, as far as this person may see it. `tenants` are those that they manage,
    with `without_two_step` members; `builds` are the unfinished ones; `chains` are broken audit logs."""

    principal: Principal
    spaces: Sequence[SpaceStanding]
    backends: Sequence[BackendStanding]
    builds: Sequence[tuple[Build, Stuck | None]]
    chains: Sequence[AuditChain] = ()
    keys: Sequence[ApiKey] = ()
    tenants: Sequence[Tenant] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """`rank` is bad (something does not work), warn (it soon won't, or costs) or info (it will come right)."""

    rank: str
    code: str
    sentence: str
    mend: str
    url: str
    since: datetime | None = None
    action: Action = Action.VIEW
    """What the mend takes, in `where`."""
    where: Space | Backend | None = None

    @property
    def label(self) -> str:
        """The rank in words."""
        return {"bad": _("broken"), "warn": _("look at it"), "info": _("to know")}[self.rank]


def needs(found: Found) -> list[Need]:
    """Ordered by rank, and within it as found."""
    everything = [
        *_of_backends(found.backends),
        *_of_releases(found.spaces),
        *_of_builds(found),
        *_of_deletions(found.spaces),
        *_of_orphans(found.backends),
        *_of_audit(found),
        *_of_keys(found.keys),
        *_of_members(found.tenants),
        *_of_lagging_sessions(found.spaces),
    ]
    told = [_as_far_as_allowed(need, found.principal) for need in everything]
    return sorted(told, key=lambda need: _RANKS.index(need.rank))


def _as_far_as_allowed(need: Need, principal: Principal) -> Need:
    """Who may not do the mend is not promised it: they see what there is."""
    if need.where is None:
        return need
    space_id = need.where.pk if isinstance(need.where, Space) else None
    if principal.may(need.action, tenant_id=need.where.tenant_id, space_id=space_id):
        return need
    return replace(need, mend=_("Look at it"))


def _of_backends(backends: Sequence[BackendStanding]) -> Iterator[Need]:
    for standing in backends:
        if not standing.is_whole:
            continue
        backend, run = standing.backend, standing.verification
        url = reverse("web:backend", args=[backend.pk])
        if standing.state == "failing":
            yield Need(
                rank="bad",
                code="backend-failing",
                sentence=_("The backend %(name)s does not answer: %(error)s")
                % {"name": backend.name, "error": backend.check_error},
                mend=_("Look at the backend"),
                url=url,
                since=backend.checked_at,
            )
        elif standing.state == "unknown" and backend.checked_at is not None:
            yield Need(
                rank="warn",
                code="backend-unchecked",
                sentence=_(
                    "Nobody has checked the backend %(name)s for %(time)s; see that the scheduler and a "
                    "worker run."
                )
                % {"name": backend.name, "time": timesince(backend.checked_at, depth=1)},
                mend=_("Check it now"),
                url=url,
                since=backend.checked_at,
                action=Action.MANAGE,
                where=backend,
            )
        if backend.cordoned_at is not None:
            yield Need(
                rank="info",
                code="backend-cordoned",
                sentence=_("The backend %(name)s is cordoned: it starts no new sandbox.")
                % {"name": backend.name},
                mend=_("Look at the backend"),
                url=url,
                since=backend.cordoned_at,
            )
        sentence = _VERIFIED.get(standing.verified)
        if sentence is not None:
            is_failed = standing.verified == "failed" and run is not None
            yield Need(
                rank="warn" if standing.verified in ("failed", "moved") else "info",
                code=f"verification-{standing.verified}",
                sentence=str(sentence) % {"name": backend.name},
                mend=_("See which point failed") if is_failed else _("Verify it"),
                url=reverse("web:verification", args=[run.pk]) if is_failed and run else url,
                since=run.finished_at if run else None,
                action=Action.VIEW if is_failed else Action.MANAGE,
                where=backend,
            )


def _of_releases(spaces: Sequence[SpaceStanding]) -> Iterator[Need]:
    for standing in spaces:
        release = standing.space.current_release
        if release is None or standing.release_state not in ("broken", "silent"):
            continue
        words = {"number": release.generation, "space": standing.space.name}
        if standing.release_state == "broken":
            sentence = _(
                "Release %(number)d of %(space)s is broken; new sessions start from the base template."
            )
        else:
            sentence = _(
                "Release %(number)d of %(space)s lies in another provider account; new sessions start from "
                "the base template."
            )
        yield Need(
            rank="bad",
            code=f"release-{standing.release_state}",
            sentence=sentence % words,
            mend=_("Rebuild it"),
            url=reverse("web:release", args=[release.pk]),
            action=Action.BUILD,
            where=standing.space,
        )


def _of_builds(found: Found) -> Iterator[Need]:
    spaces = {standing.space.pk: standing.space for standing in found.spaces}
    for build, stuck in found.builds:
        if stuck is None:
            continue
        words = {"space": str(build.space), "time": seconds(stuck.silent_s)}
        if stuck.is_claimed:
            sentence = (
                _("The worker of a build of %(space)s was last heard of %(time)s ago.") % words
            )
        else:
            sentence = (
                _("No worker has taken up a build of %(space)s for %(time)s; see that one runs.")
                % words
            )
        yield Need(
            rank="bad",
            code="build-stuck",
            sentence=sentence,
            mend=_("Take it up or cancel it"),
            url=reverse("web:build", args=[build.pk]),
            action=Action.OPERATE,
            where=spaces.get(build.space_id),
        )
    tried_again = {build.space_id for build, _stuck in found.builds}
    for standing in failed_last(found.spaces, within=_FAILED_WITHIN):
        if standing.space.pk not in tried_again:
            yield Need(
                rank="bad",
                code="build-failed",
                sentence=_("The last build of %(space)s failed; what served before still serves.")
                % {"space": standing.space.name},
                mend=_("See why, and try again"),
                url=reverse("web:build", args=[standing.last_build]),
                since=standing.last_build_at,
                action=Action.BUILD,
                where=standing.space,
            )


def _of_deletions(spaces: Sequence[SpaceStanding]) -> Iterator[Need]:
    for standing in spaces:
        if problem := standing.space.delete_problem:
            yield Need(
                rank="bad",
                code="deletion-waits",
                sentence=_("The deletion of %(space)s can't go on: %(problem)s")
                % {"space": standing.space.name, "problem": problem},
                mend=_("Look at the space"),
                url=reverse("web:space", args=[standing.space.pk]),
                since=standing.space.delete_requested_at,
            )


def _of_orphans(backends: Sequence[BackendStanding]) -> Iterator[Need]:
    for standing in backends:
        report = standing.report
        age_s = report.oldest_orphan_s if report else None
        if report is None or age_s is None or age_s < 2 * settings.SKILLYARD_ORPHAN_GRACE_S:
            continue
        yield Need(
            rank="warn",
            code="orphans-old",
            sentence=ngettext(
                "%(count)d sandbox on %(name)s is nobody's and was not deleted; it is %(time)s old.",
                "%(count)d sandboxes on %(name)s are nobody's and were not deleted; the oldest is "
                "%(time)s old.",
                standing.orphans,
            )
            % {
                "count": standing.orphans,
                "name": standing.backend.name,
                "time": timesince(timezone.now() - timedelta(seconds=age_s), depth=1),
            },
            mend=_("See the report"),
            url=reverse("web:reconcile-report", args=[report.pk]),
            since=report.finished_at,
        )


def _of_audit(found: Found) -> Iterator[Need]:
    names = {standing.space.tenant_id: standing.space.tenant.name for standing in found.spaces}
    for chain in found.chains:
        yield Need(
            rank="bad",
            code="audit-broken",
            sentence=_(
                "The audit log of %(tenant)s was changed outside of Skillyard: entry %(number)d does not fit "
                "what comes before it."
            )
            % {
                "tenant": names.get(chain.key, chain.key) or _("the platform"),
                "number": chain.broken,
            },
            mend=_("Read the log"),
            url=reverse("web:audit"),
            since=chain.verified_at,
        )


def _of_keys(keys: Sequence[ApiKey]) -> Iterator[Need]:
    for key in keys:
        if key.expires_at is not None:
            yield Need(
                rank="warn",
                code="key-expiring",
                sentence=_("The API key “%(name)s” expires in %(time)s.")
                % {"name": key.name, "time": timesince(timezone.now(), key.expires_at, depth=1)},
                mend=_("Make its successor"),
                url=reverse("web:keys"),
                since=None,
            )


def _of_members(tenants: Sequence[Tenant]) -> Iterator[Need]:
    for tenant in tenants:
        count = getattr(tenant, "without_two_step", 0)
        if count:
            yield Need(
                rank="warn",
                code="two-step-missing",
                sentence=ngettext(
                    "%(count)d member of %(tenant)s has no two-step sign-in, which the tenant asks for.",
                    "%(count)d members of %(tenant)s have no two-step sign-in, which the tenant asks for.",
                    count,
                )
                % {"count": count, "tenant": tenant.name},
                mend=_("See who"),
                url=reverse("web:members"),
            )


def _of_lagging_sessions(spaces: Sequence[SpaceStanding]) -> Iterator[Need]:
    for standing in spaces:
        space = standing.space
        if count := standing.behind_policy:
            yield Need(
                rank="info",
                code="policy-pending",
                sentence=ngettext(
                    "%(count)d session of %(space)s still has an older network policy than revision "
                    "%(number)d.",
                    "%(count)d sessions of %(space)s still have an older network policy than revision "
                    "%(number)d.",
                    count,
                )
                % {"count": count, "space": space.name, "number": standing.policy_number},
                mend=_("Apply it now"),
                url=reverse("web:network", args=[space.pk]),
                action=Action.POLICY,
                where=space,
            )
        if count := standing.behind_release:
            if space.rollout == Rollout.NEXT_TURN:
                sentence = ngettext(
                    "%(count)d session of %(space)s has another release than new ones get; it moves at its "
                    "next turn.",
                    "%(count)d sessions of %(space)s have another release than new ones get; they move at "
                    "their next turn.",
                    count,
                )
            else:
                sentence = ngettext(
                    "%(count)d session of %(space)s has another release than new ones get, and keeps it.",
                    "%(count)d sessions of %(space)s have another release than new ones get, and keep it.",
                    count,
                )
            yield Need(
                rank="info",
                code="sessions-drifted",
                sentence=sentence % {"count": count, "space": space.name},
                mend=_("See the sessions"),
                url=reverse("web:space-sessions", args=[space.pk]) + "?drift=release",
            )
