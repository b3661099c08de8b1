"""List, build, import and remove the base images of this machine."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from django.core.management.base import BaseCommand

from sandboxes.sandboxd.templates.commands import add_template_actions, run_template_action


class Command(BaseCommand):
    help = __doc__
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_template_actions(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        code = run_template_action(argparse.Namespace(**options))
        if code:
            sys.exit(code)
