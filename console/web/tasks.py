"""Celery tasks of the pages: what people asked to be done to many rows."""

from __future__ import annotations

from celery import shared_task

from console.web.bulk import runs

__all__ = ["run_bulk", "sweep_bulk"]


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def run_bulk(run_id: str) -> None:
    """The next slice of a run; it hands on what is left."""
    runs.work(run_id)


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def sweep_bulk() -> None:
    """Runs that a worker left, and those that are old."""
    runs.sweep()
