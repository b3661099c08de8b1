"""The eight points against one backend: asked for, run, kept, and compared with the last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.db import transaction
from django.utils import timezone

from console.audit.services import Actor, record
from console.fleet.models import Backend, Verification, VerificationState
from console.tenants.models import Space
from sandboxes.checklist import Outcome, run_checklist
from sandboxes.errors import SandboxError
from sandboxes.sessions.keys import (
    SCHEMA_VERSION,
    TAG_BACKEND,
    TAG_BUILD,
    TAG_SCHEMA,
    TAG_SPACE,
    TAG_TENANT,
)

__all__ = [
    "Compared",
    "compare",
    "default_template",
    "end_abandoned",
    "request_verification",
    "verify",
]

RUN_LIMIT_S = 20 * 60.0
"""A point that hangs has a limit of its own; this is for all of them together."""
_LONGEST_RUN = timedelta(seconds=2 * RUN_LIMIT_S)


def default_template(backend: Backend) -> str:
    """What sandboxes of this backend start from, as far as its settings or spaces say."""
    configured = str(backend.settings.get("template") or "")
    space = Space.objects.filter(backend=backend).order_by("created_at").first()
    return configured or (space.base_template if space else "base")


@transaction.atomic
def request_verification(*, backend: Backend, template: str, actor: Actor) -> Verification:
    """Ask a worker for a run; its report, still empty, is returned at once."""
    from console.fleet.tasks import run_verification

    row = _new(backend, template, actor)
    # Without a broker the row waits: the beat hands it over once there is one.
    transaction.on_commit(lambda: run_verification.delay(row.pk), robust=True)
    return row


def end_abandoned(*, now: datetime | None = None) -> int:
    """Say of runs that can't be under way any more that they broke off. Returns of how many."""
    now = now or timezone.now()
    return Verification.objects.filter(started_at__lt=now - _LONGEST_RUN, finished_at=None).update(
        state=VerificationState.FAILED,
        finished_at=now,
        problem="Its worker ended before it was done; start another run.",
    )


def _new(backend: Backend, template: str, actor: Actor) -> Verification:
    row = Verification.objects.create(
        backend=backend,
        template=template or default_template(backend),
        fingerprint=backend.fingerprint,
        actor=actor.name,
    )
    record(
        actor=actor,
        action="backend.verify",
        target=backend.name,
        tenant_id=backend.tenant_id,
        details={"verification": row.pk, "template": row.template},
    )
    return row


async def verify(
    row: Verification, *, on_point: Callable[[Compared], None] | None = None
) -> Verification:
    """Run it, point by point, each kept, and told to `on_point`, as it is done. `row` comes with its backend.
    Raises nothing of the provider's trouble: the report tells."""
    backend = row.backend
    row.state, row.started_at, row.points = VerificationState.RUNNING, timezone.now(), []
    await row.asave()
    tags = {
        TAG_TENANT: backend.tenant_id,
        TAG_BACKEND: backend.pk,
        # As a build's, so that the reconciler has what a crash leaves.
        TAG_SPACE: "verification",
        TAG_BUILD: row.pk,
        TAG_SCHEMA: SCHEMA_VERSION,
    }
    before = await sync_to_async(_before)(row)
    try:
        async with asyncio.timeout(RUN_LIMIT_S), await backend.open_client() as client:
            points = run_checklist(client, template=row.template, tags=tags)
            async with aclosing(points):
                async for point in points:
                    row.points.append({**asdict(point), "outcome": point.outcome.value})
                    await row.asave(update_fields=["points"])
                    if on_point is not None:
                        on_point(_compared(row.points[-1], before.get(point.name)))
    except SandboxError as error:
        row.problem = error.message[:500]
    except TimeoutError:
        row.problem = (
            f"It was ended after {RUN_LIMIT_S / 60:.0f} minutes; see which point took so long, and start "
            "another run."
        )
    failed = any(point["outcome"] == Outcome.FAILED for point in row.points)
    bad = failed or bool(row.problem)
    row.state = VerificationState.FAILED if bad else VerificationState.PASSED
    row.finished_at = timezone.now()
    await row.asave()
    return row


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A point, and what became of it since the run before. `change` is "", "better" or "worse"; `before_s` is how
    long it took then."""

    point: dict[str, Any]
    before: str = ""
    before_s: float | None = None
    change: str = ""


_WORTH = {"failed": 0, "skipped": 1, "passed": 2}


def compare(row: Verification) -> list[Compared]:
    """Each point beside its outcome in the last run."""
    before = _before(row)
    return [_compared(point, before.get(point["name"])) for point in row.points]


def _before(row: Verification) -> dict[str, dict[str, Any]]:
    previous = row.previous()
    return {point["name"]: point for point in previous.points} if previous else {}


def _compared(point: dict[str, Any], before: dict[str, Any] | None) -> Compared:
    if before is None:
        return Compared(point=point)
    change = ""
    if before["outcome"] != point["outcome"]:
        better = _WORTH[point["outcome"]] > _WORTH[before["outcome"]]
        change = "better" if better else "worse"
    return Compared(
        point=point, before=before["outcome"], before_s=before.get("took_s"), change=change
    )
