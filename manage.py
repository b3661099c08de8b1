#!/usr/bin/env python3
"""Entry point of every management command; `manage.py up` runs the whole product."""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    if sys.argv[1:2] == ["up"]:
        # It only starts the processes that load the apps: without loading them itself, the first
        # page comes a second sooner.
        from console.embedded.management.commands.up import Command

        Command().run_from_argv(sys.argv)
    else:
        execute_from_command_line(sys.argv)
