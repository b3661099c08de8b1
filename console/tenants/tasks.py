"""Celery tasks of the accounts. Thin and idempotent."""

from __future__ import annotations

from celery import shared_task
from django.contrib.sessions.backends.db import SessionStore

__all__ = ["sweep_sign_ins"]


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def sweep_sign_ins() -> None:
    """Sessions that have run out, with their rows of sign-ins."""
    SessionStore.clear_expired()
