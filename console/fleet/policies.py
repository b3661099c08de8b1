"""A policy and the sandboxes that run already: who has which, apply it now, try a host for real."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

from asgiref.sync import sync_to_async
from django.db.models import Count, Q, QuerySet

from console.audit.services import Actor, record
from console.fleet.models import Session, SessionState
from console.fleet.runtime import Runtime
from console.policies.hosts import host_of
from console.policies.models import NetworkPolicyRevision
from console.tenants.models import Space
from sandboxes.errors import NotFound, SandboxError
from sandboxes.network import NetworkPolicy
from sandboxes.sessions import TAG_SPACE, TAG_TENANT, Rollout
from sandboxes.types import CreateRequest, ExecRequest, TimeoutPolicy

__all__ = [
    "Affected",
    "ApplyReport",
    "Trial",
    "affected",
    "apply_now",
    "drifted_sessions",
    "try_host",
]

_AT_ONCE = 8
_TRIAL_LIFE_S = 60.0
_CONNECT_S = 5
_WHOLE_S = 10


@dataclass(slots=True)
class ApplyReport:
    """`updated` got it in place, `stale` get it at their next turn; `failed` is (session, why)."""

    updated: int = 0
    stale: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a throw-away sandbox met. `answer` is the HTTP status, or curl's own words."""

    reached: bool
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Affected:
    """Sessions that have a sandbox now. `drifted` are those of them with another revision."""

    running: int
    paused: int
    drifted: int

    @property
    def live(self) -> int:
        return self.running + self.paused


def affected(space: Space, revision: NetworkPolicyRevision) -> Affected:
    """Whom a change of the policy concerns, counted now."""
    drifted = drifted_sessions(space, revision).values("pk")
    counts = Session.objects.filter(space=space).aggregate(
        running=Count("pk", filter=Q(state=SessionState.ACTIVE)),
        paused=Count("pk", filter=Q(state=SessionState.PAUSED)),
        drifted=Count("pk", filter=Q(pk__in=drifted)),
    )
    return Affected(**counts)


def drifted_sessions(space: Space, revision: NetworkPolicyRevision) -> QuerySet[Session]:
    """Sessions with a sandbox that was made, or last updated, under an older revision."""
    return Session.objects.filter(
        ~Q(policy=revision) | Q(policy=None),
        space=space,
        state__in=[SessionState.ACTIVE, SessionState.PAUSED],
    )


async def apply_now(
    *, runtime: Runtime, space: Space, revision: NetworkPolicyRevision, actor: Actor
) -> ApplyReport:
    """Bring running sessions to this revision: in place where the backend can, else by marking them
    stale. Idempotent; a session that fails is reported and the rest go on."""
    client = await runtime.client(space.backend)
    report = ApplyReport()
    if client.network is None:
        theirs = {
            session_id
            async for session_id in Session.objects.made_by_clients()
            .filter(space=space, state__in=[SessionState.ACTIVE, SessionState.PAUSED])
            .values_list("session_id", flat=True)
        }
        stale = await runtime.sessions.mark_stale(
            tenant=space.tenant_id,
            space=space.pk,
            why="policy",
            rollout=Rollout.NEXT_TURN,
            fresh=lambda binding: (
                binding.policy_revision == str(revision.number) or binding.key.session in theirs
            ),
        )
        report.stale = stale.marked + stale.already
        report.failed = [(failure.session, failure.message) for failure in stale.failures]
    else:
        slots = asyncio.Semaphore(_AT_ONCE)
        control, policy = client.network, revision.policy()

        async def update(session: Session) -> None:
            async with slots:
                try:
                    await control.update(session.sandbox_id, policy)
                except NotFound:
                    return
                except SandboxError as error:
                    report.failed.append((session.session_id, error.message))
                    return
            session.policy = revision
            await session.asave(update_fields=["policy"])
            report.updated += 1

        async with asyncio.TaskGroup() as group:
            async for session in drifted_sessions(space, revision):
                group.create_task(update(session))
    await sync_to_async(_record)(space, revision, actor, report)
    return report


def _record(
    space: Space, revision: NetworkPolicyRevision, actor: Actor, report: ApplyReport
) -> None:
    record(
        actor=actor,
        action="policy.apply",
        target=f"{space.slug}#{revision.number}",
        tenant_id=space.tenant_id,
        space_id=space.pk,
        details={
            "updated": report.updated,
            "stale": report.stale,
            "failed": [session for session, _ in report.failed],
        },
    )


async def try_host(
    *, runtime: Runtime, space: Space, policy: NetworkPolicy, target: str, actor: Actor
) -> Trial:
    """Start a sandbox with this policy, try the host, address or URL from inside, and delete it."""
    space.backend.require_open()
    host = host_of(target)
    client = await runtime.client(space.backend)
    sandbox = await client.create(
        CreateRequest(
            template=space.base_template,
            network=policy,
            timeout=TimeoutPolicy(timeout_s=_TRIAL_LIFE_S),
            metadata={TAG_TENANT: space.tenant_id, TAG_SPACE: space.pk, "skillyard_trial": "1"},
        )
    )
    try:
        result = await client.run(
            sandbox,
            ExecRequest(
                argv=(
                    "curl",
                    "--silent",
                    "--show-error",
                    "--output",
                    "/dev/null",
                    "--connect-timeout",
                    str(_CONNECT_S),
                    "--max-time",
                    str(_WHOLE_S),
                    "--write-out",
                    "HTTP %{http_code} from %{remote_ip}",
                    "--",
                    target if "://" in target else f"http://{target}",
                ),
                timeout_s=_WHOLE_S + _CONNECT_S,
            ),
        )
    finally:
        # If this fails, the sandbox's own deadline deletes it.
        with contextlib.suppress(SandboxError):
            await client.delete(sandbox.id)
    text = (result.stdout if result.ok else result.stderr).decode(errors="replace").strip()
    # The host alone: the rest of a URL may hold a secret.
    await sync_to_async(record)(
        actor=actor,
        action="policy.try",
        target=host,
        tenant_id=space.tenant_id,
        space_id=space.pk,
        details={"reached": result.ok},
    )
    return Trial(reached=result.ok, answer=text[:300])
