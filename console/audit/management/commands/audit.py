"""`manage.py audit verify`: prove that no entry of the audit log was changed or removed."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from console.audit.services import verify_all


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("action", choices=["verify"])

    def handle(self, *args: Any, **options: Any) -> None:
        broken = False
        for result in verify_all():
            if result.broken:
                broken = True
                self.stdout.write(self.style.ERROR(f"{result.chain}: {result.reason}"))
            else:
                self.stdout.write(f"{result.chain}: {result.entries} entries, unbroken")
        sys.exit(1 if broken else 0)
