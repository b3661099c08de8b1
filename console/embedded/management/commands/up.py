"""Run the whole product on this machine until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from console.embedded.errors import CannotStart
from console.embedded.up import Options, run


class Command(BaseCommand):
    help = __doc__
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument(
            "--data-dir",
            type=Path,
            default=settings.DATA_DIR,
            help="where everything is kept (now: %(default)s)",
        )
        parser.add_argument(
            "--no-template", action="store_true", help="do not build the base template"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        chosen = Options(
            data=options["data_dir"].absolute(),
            host=options["host"],
            port=options["port"],
            build_template=not options["no_template"],
        )
        try:
            asyncio.run(run(chosen, checkout=settings.BASE_DIR, announce=self._announce))
        except CannotStart as error:
            raise CommandError(str(error)) from error

    def _announce(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()
