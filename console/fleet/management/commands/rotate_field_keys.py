"""Encrypt every stored secret anew with the first of SKILLYARD_FIELD_KEYS, so that the others can go."""

from __future__ import annotations

from typing import Any

from asgiref.sync import async_to_sync
from django.core.management.base import BaseCommand

from console.audit.services import SYSTEM, record
from console.fleet.keys import rotate_rows, rotate_tokens


class Command(BaseCommand):
    help = (
        "Encrypt every stored secret with the newest key: put it first in SKILLYARD_FIELD_KEYS, restart, run "
        "this, then take the old key out. Can be repeated."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        rows = rotate_rows()
        tokens = async_to_sync(rotate_tokens)()
        record(
            actor=SYSTEM,
            action="keys.rotate",
            target="field keys",
            details={"rows": rows, "tokens": tokens},
        )
        self.stdout.write(
            f"{rows} rows and {tokens} traffic tokens are now encrypted with the first key; the others may "
            "be taken out of SKILLYARD_FIELD_KEYS."
        )
