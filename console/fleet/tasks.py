"""Celery tasks of the fleet. Thin, idempotent; what one leaves, the next beat takes up."""

from __future__ import annotations

from asgiref.sync import async_to_sync
from celery import shared_task

from console.audit.services import SYSTEM, Actor
from console.fleet import accounts, attachments
from console.fleet.models import Backend, ReconcileReport, Verification
from console.fleet.reconcile import prune_reports, reconcile
from console.fleet.removal import pending, remove
from console.fleet.runtime import Runtime
from console.fleet.samples import take_sample, thin_samples
from console.fleet.services import check_backend
from console.fleet.verification import end_abandoned, verify
from console.fleet.waiting import claim, waiting

__all__ = [
    "check_backends",
    "check_one_backend",
    "clean_account",
    "clean_accounts",
    "reconcile_backend",
    "reconcile_backends",
    "remove_space",
    "run_reconcile",
    "run_verification",
    "sample_sessions",
    "sweep_fleet",
    "take_up_requests",
]

_BEAT_S = 300
_CHECK_BEAT_S = 60
_REQUESTS_BEAT_S = 60


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def reconcile_backends() -> None:
    """Hand each backend to a worker; one that nobody took up by the next beat is forgotten."""
    for backend_id in Backend.objects.values_list("pk", flat=True):
        reconcile_backend.apply_async((backend_id,), expires=_BEAT_S)


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def reconcile_backend(backend_id: str) -> None:
    """Compare one backend with what needs its sandboxes, and delete what surely nobody needs."""
    async_to_sync(_reconcile)(Backend.objects.get(pk=backend_id), None)


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def run_reconcile(report_id: str) -> None:
    """The run that somebody asked for. Delivered twice, it runs once."""
    report = ReconcileReport.objects.select_related("backend").get(pk=report_id)
    if claim(report):
        async_to_sync(_reconcile)(report.backend, report)


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def run_verification(verification_id: str) -> None:
    """The eight points, as somebody asked. Delivered twice, it runs once."""
    row = Verification.objects.select_related("backend").get(pk=verification_id)
    if claim(row):
        async_to_sync(verify)(row)


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def check_backends() -> None:
    """Hand each backend to a worker, to see whether it answers."""
    for backend_id in Backend.objects.values_list("pk", flat=True):
        check_one_backend.apply_async((backend_id,), expires=_CHECK_BEAT_S)


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def check_one_backend(backend_id: str) -> None:
    """See whether it answers, and how fast."""
    # It may have been deleted since the beat.
    for backend in Backend.objects.filter(pk=backend_id):
        async_to_sync(check_backend)(backend)


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def sample_sessions() -> None:
    """Count the sessions, for the charts."""
    take_sample()


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def clean_accounts() -> None:
    """Go on cleaning up accounts that backends have left."""
    for former_id in accounts.open_accounts():
        clean_account.apply_async((former_id,), expires=_BEAT_S)


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def clean_account(former_id: str) -> None:
    """Delete what is ours there; erase its credentials once nothing is left."""
    async_to_sync(accounts.clean)(former_id)


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def sweep_fleet() -> None:
    """Old reports and counts, and the files of sessions that are no more."""
    prune_reports()
    thin_samples()
    attachments.sweep()


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def remove_space(space_id: str) -> None:
    """Go on with the deletion of one space."""
    async_to_sync(_remove)(space_id)


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def take_up_requests() -> None:
    """Hand over again what was asked for and no worker has begun: the broker may have been away, or have lost
    it. Deletions of spaces until they are done."""
    end_abandoned()
    for report_id in waiting(ReconcileReport):
        run_reconcile.apply_async((report_id,), expires=_REQUESTS_BEAT_S)
    for verification_id in waiting(Verification):
        run_verification.apply_async((verification_id,), expires=_REQUESTS_BEAT_S)
    for space_id in pending():
        remove_space.apply_async((space_id,), expires=_REQUESTS_BEAT_S)


async def _remove(space_id: str) -> None:
    async with Runtime() as runtime:
        await remove(runtime=runtime, space_id=space_id)


async def _reconcile(backend: Backend, report: ReconcileReport | None) -> None:
    async with Runtime() as runtime:
        await reconcile(
            runtime=runtime,
            backend=backend,
            dry_run=report.dry_run if report else False,
            actor=Actor(name=report.actor) if report else SYSTEM,
            report=report,
        )
