"""Run another management command as the service account, with the settings that `up` uses.

Run as root without it, a command would leave files in the data directory that the console cannot
write. Example: manage.py as_service changepassword admin
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from console.embedded.accounts import Launcher, ensure_service_account
from console.embedded.errors import CannotStart
from console.embedded.layout import Layout


class Command(BaseCommand):
    help = __doc__
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--data-dir", type=Path, default=settings.DATA_DIR)
        parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND ...")

    def handle(self, *args: Any, **options: Any) -> None:
        if not options["command"]:
            raise CommandError("Name the command to run, for example `changepassword admin`.")
        layout = Layout.of(options["data_dir"].absolute())
        if not (layout.console / "field_keys").exists():
            raise CommandError(f"{layout.data} holds no Skillyard yet: run `make up` first.")
        try:
            launcher = Launcher(account=ensure_service_account(), checkout=settings.BASE_DIR)
        except CannotStart as error:
            raise CommandError(str(error)) from error
        argv = launcher.unprivileged("manage.py", *options["command"])
        os.chdir(launcher.checkout)
        os.execvpe(argv[0], argv, layout.environment())  # noqa: S606 - no shell is wanted
