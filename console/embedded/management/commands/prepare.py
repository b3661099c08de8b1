"""Bring the database and the static files up to date, and seed an empty database.

`manage.py up` runs it as the service account before anything serves.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command
from django.core.management.base import BaseCommand

from console.embedded.layout import Layout
from console.embedded.seed import seed


class Command(BaseCommand):
    help = __doc__
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        call_command("migrate", interactive=False, verbosity=0)
        collect_static(Path(settings.STATIC_ROOT))
        seed(login_file=Layout.of(settings.DATA_DIR).first_login)


def collect_static(target: Path) -> None:
    """Only when a file has changed since: hashing and compressing them takes a second."""
    stamp = target.with_name("static.sha256")
    wanted = _fingerprint()
    if stamp.exists() and stamp.read_text() == wanted and target.is_dir():
        return
    call_command("collectstatic", interactive=False, clear=True, verbosity=0)
    stamp.write_text(wanted)


def _fingerprint() -> str:
    found = []
    for finder in get_finders():
        for name, storage in finder.list(ignore_patterns=[]):
            changed = storage.get_modified_time(name).isoformat()
            found.append((name, storage.path(name), changed, storage.size(name)))
    return hashlib.sha256(json.dumps(sorted(found)).encode()).hexdigest()
