"""Celery tasks of skills. Thin, idempotent, safe to run twice; each takes ids and reads the rows anew.

Nothing is retried by the broker: the beat's sweep takes up whatever a worker left (`skills.reaper`).
"""

from __future__ import annotations

import logging

from asgiref.sync import async_to_sync
from celery import shared_task

from skills import reaper
from skills.build import ledger, pipeline
from skills.models import Build, Promotion
from skills.uploads import sweep_uploads

__all__ = [
    "check_snapshot",
    "delete_snapshot",
    "reconcile_snapshots",
    "run_build",
    "sweep_builds",
    "tell_sessions",
]


log = logging.getLogger(__name__)


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def run_build(build_id: str) -> None:
    """Run one build to its end, or return at once if another of its space comes first."""
    async_to_sync(pipeline.run)(build_id)
    build = Build.objects.get(pk=build_id)
    for promotion in Promotion.objects.filter(space=build.space_id, sessions_told_at=None):
        try:
            tell_sessions.run(promotion.pk)
        except Exception:
            log.exception("the sessions of space %s are told by the next sweep", build.space_id)
    following = Build.objects.unfinished().filter(space=build.space_id).order_by("pk").first()
    if build.is_finished and following is not None:
        run_build.delay(following.pk)


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def tell_sessions(promotion_id: str) -> None:
    """Mark the running sessions of a switched space stale."""
    ledger.tell_sessions(Promotion.objects.select_related("space", "release").get(pk=promotion_id))


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def delete_snapshot(release_id: str) -> None:
    """Delete the snapshot of a release whose deletion was asked for."""
    async_to_sync(reaper.delete_snapshot)(release_id)


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def check_snapshot(release_id: str) -> None:
    """See whether the release's snapshot still exists; mark it broken if not."""
    async_to_sync(reaper.check_snapshot)(release_id)


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def sweep_builds() -> None:
    """Finish or undo what workers left behind."""
    async_to_sync(reaper.sweep)()


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def reconcile_snapshots() -> None:
    """Compare providers and ledger; prune superseded releases; forget old uploads."""
    async_to_sync(reaper.reconcile)()
    sweep_uploads()
