"""The Celery application. Tasks are found as `tasks.py` in each app."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

app = Celery("skillyard")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
