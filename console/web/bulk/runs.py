"""Doing one thing to many rows: chosen and frozen, confirmed, done by a worker, each row with its outcome.

A row is judged when its turn comes: whether it is still there, whether the person still may, whether the
service refuses. Runs are taken up slice by slice, so that a long one holds up no other task, and again after
a worker died; actions are idempotent.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from asgiref.sync import async_to_sync
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone, translation
from django.utils.translation import gettext as _

from console.audit.models import Outcome
from console.audit.services import Line, record_all
from console.fleet.runtime import Runtime
from console.tenants.access import Principal
from console.tenants.models import User
from console.web.bulk.registry import pages
from console.web.lists import BulkAction, Job, ListPage, Owner
from console.web.models import BulkItem, BulkOutcome, BulkRun
from sandboxes.errors import SandboxError

__all__ = ["MOST_ROWS", "choose", "chosen_rows", "retry", "start", "stop", "sweep", "work"]

log = logging.getLogger(__name__)

MOST_ROWS = 20_000
"""Of one run."""
_AT_ONCE = 8
_BATCH = 40
_SLICE_S = 20.0
_LEASE = timedelta(minutes=10)
"""Longer than a batch can take: each call to a backend has its own limit."""
_UNTENDED = timedelta(minutes=1)
_KEEP = timedelta(days=30)
_KEEP_UNCONFIRMED = timedelta(days=1)
_AGAIN = (BulkOutcome.REFUSED, BulkOutcome.FAILED, BulkOutcome.STOPPED)


@transaction.atomic
def choose(
    *,
    principal: Principal,
    user: User,
    page: ListPage,
    action: BulkAction,
    rows: QuerySet[Any],
    query: str = "",
) -> BulkRun | None:
    """Freeze `rows` as a run that waits to be confirmed; None if there are none."""
    chosen = [
        BulkItem(target=row.pk, label=page.label(row)[:256])
        for row in rows.prefetch_related(None)[:MOST_ROWS].iterator(chunk_size=1000)
    ]
    if not chosen:
        return None
    total = rows.count() if len(chosen) == MOST_ROWS else len(chosen)
    run = BulkRun.objects.create(
        user=user,
        list_name=page.name,
        action=action.name,
        query=query,
        left_out=total - len(chosen),
        address=principal.actor.address,
        language=translation.get_language() or "",
    )
    _fill(run, chosen)
    return run


@transaction.atomic
def retry(run: BulkRun) -> BulkRun | None:
    """A run of what was not done, to be confirmed; None if all was."""
    again = [
        BulkItem(target=item.target, label=item.label)
        for item in run.items.filter(outcome__in=_AGAIN)
    ]
    if not again:
        return None
    following = BulkRun.objects.create(
        user=run.user,
        list_name=run.list_name,
        action=run.action,
        query=run.query,
        address=run.address,
        language=translation.get_language() or "",
    )
    _fill(following, again)
    return following


def _fill(run: BulkRun, items: Sequence[BulkItem]) -> None:
    for item in items:
        item.run = run
    BulkItem.objects.bulk_create(items, batch_size=1000)


def chosen_rows(run: BulkRun, principal: Principal) -> QuerySet[Any]:
    """Those of the run that are still there for its person."""
    return pages()[run.list_name].rows(principal).filter(pk__in=run.items.values("target"))


def start(run: BulkRun) -> None:
    """It is confirmed. Idempotent."""
    if BulkRun.objects.filter(pk=run.pk, started_at=None).update(started_at=timezone.now()):
        _hand_on(run.pk)


def stop(run: BulkRun) -> None:
    """Leave what has not begun. Idempotent; what is being done is done."""
    run.items.filter(outcome=BulkOutcome.WAITING).update(
        outcome=BulkOutcome.STOPPED, finished_at=timezone.now()
    )
    BulkRun.objects.filter(pk=run.pk, finished_at=None).update(
        finished_at=timezone.now(), started_at=run.started_at or timezone.now()
    )


def work(run_id: str) -> None:
    """Do the next slice of a run, if no other worker is at it. Idempotent."""
    now = timezone.now()
    taken = BulkRun.objects.untended().filter(pk=run_id)
    if not taken.update(taken_until=now + _LEASE):
        return
    run = BulkRun.objects.select_related("user").get(pk=run_id)
    page = pages()[run.list_name]
    action = page.action(run.action)
    if action is None or not run.user.is_active:
        stop(run)
        return
    deadline = time.monotonic() + _SLICE_S
    try:
        while batch := list(run.items.filter(outcome=BulkOutcome.WAITING)[:_BATCH]):
            _do(run, page, action, batch)
            BulkRun.objects.filter(pk=run_id).update(taken_until=timezone.now() + _LEASE)
            if time.monotonic() > deadline:
                break
    finally:
        BulkRun.objects.filter(pk=run_id).update(taken_until=None)
    if batch:
        _hand_on(run_id)
    else:
        BulkRun.objects.filter(pk=run_id, finished_at=None).update(finished_at=timezone.now())


def sweep() -> None:
    """Take up what nobody works on, and forget runs that nobody looks at any more."""
    for run_id in BulkRun.objects.untended(for_=_UNTENDED).values_list("pk", flat=True):
        _hand_on(run_id)
    now = timezone.now()
    BulkRun.objects.filter(
        Q(finished_at__lt=now - _KEEP) | Q(started_at=None, created_at__lt=now - _KEEP_UNCONFIRMED)
    ).delete()


def _hand_on(run_id: str) -> None:
    """To a worker; without a broker it waits for the sweep."""
    from console.web.tasks import run_bulk

    transaction.on_commit(lambda: run_bulk.delay(run_id), robust=True)


def _do(run: BulkRun, page: ListPage, action: BulkAction, items: Sequence[BulkItem]) -> None:
    """Do these and write down how each went. What was done is in the audit log by its service."""
    principal = Principal.of_user(run.user, address=run.address, request_id=run.pk)
    rows = {
        str(row.pk): row for row in page.rows(principal).filter(pk__in=[i.target for i in items])
    }
    with translation.override(run.language):
        async_to_sync(_do_all)(principal, page, action, items, rows)
    BulkItem.objects.bulk_update(items, ["outcome", "reason", "finished_at"])
    record_all(
        [
            _undone(principal, action, page.owner(rows[item.target]), item)
            for item in items
            if item.outcome != BulkOutcome.DONE and item.target in rows
        ]
    )


def _undone(principal: Principal, action: BulkAction, owner: Owner, item: BulkItem) -> Line:
    may = principal.may(action.right, tenant_id=owner.tenant_id, space_id=owner.space_id)
    return Line(
        actor=principal.actor,
        action=action.name,
        target=item.label,
        tenant_id=owner.tenant_id,
        space_id=owner.space_id,
        outcome=Outcome.FAILED if may else Outcome.DENIED,
        details={"reason": item.reason},
    )


async def _do_all(
    principal: Principal,
    page: ListPage,
    action: BulkAction,
    items: Sequence[BulkItem],
    rows: dict[str, Any],
) -> None:
    places = asyncio.Semaphore(_AT_ONCE)
    async with Runtime() as runtime:
        job = Job(principal, runtime)

        async def one(item: BulkItem) -> None:
            async with places:
                item.outcome, item.reason = await _outcome(job, page, action, rows.get(item.target))
                item.finished_at = timezone.now()

        async with asyncio.TaskGroup() as group:
            for item in items:
                group.create_task(one(item))


async def _outcome(job: Job, page: ListPage, action: BulkAction, row: Any) -> tuple[str, str]:
    if row is None:
        return BulkOutcome.REFUSED, _("It is not there any more.")
    owner = page.owner(row)
    try:
        job.principal.require(action.right, tenant_id=owner.tenant_id, space_id=owner.space_id)
        return BulkOutcome.DONE, await action.apply(job, row)
    except PermissionDenied as error:
        return BulkOutcome.REFUSED, str(error)
    except SandboxError as error:
        return BulkOutcome.REFUSED, error.message[:500]
    except Exception:
        log.exception("%s of %s failed", action.name, row.pk)
        return BulkOutcome.FAILED, _(
            "Something went wrong here; the server's log tells what. Try it again."
        )
