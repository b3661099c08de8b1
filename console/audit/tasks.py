"""Celery tasks of the audit log."""

from __future__ import annotations

from celery import shared_task

from console.audit.services import verify_all

__all__ = ["verify_chains"]


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def verify_chains() -> None:
    """Prove once a day that no entry was changed or removed."""
    verify_all()
