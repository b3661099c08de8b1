"""Install three skills, build a release and run sessions from it, with the times that takes."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from console.embedded import demo
from console.embedded.demo import job
from console.embedded.errors import CannotStart
from sandboxes.errors import SandboxError
from sandboxes.sandboxd.templates.commands import default_templates_dir


class Command(BaseCommand):
    help = __doc__
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON object last")
        parser.add_argument(
            "--output",
            type=Path,
            default=Path("var/demo"),
            help="where the artifacts go (%(default)s)",
        )
        parser.add_argument("--data-dir", type=Path, default=settings.DATA_DIR / "demo")
        parser.add_argument("--job", choices=("run", "clean"), help=argparse.SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["job"]:
            self._job(options["job"])
            return
        with Steps(Console(stderr=True)) as steps:
            wanted = demo.Demo(
                data=options["data_dir"].absolute(),
                templates=default_templates_dir(),
                output=options["output"].absolute(),
                checkout=settings.BASE_DIR,
                report=steps.report,
            )
            try:
                result = asyncio.run(demo.run(wanted))
            except (CannotStart, SandboxError) as error:
                raise CommandError(str(error)) from error
            except (asyncio.CancelledError, KeyboardInterrupt):
                raise CommandError("Interrupted; everything was cleaned up.") from None
        if options["json"]:
            self.stdout.write(json.dumps(result, ensure_ascii=False))
        elif result["ok"]:
            show(result)
        if not result["ok"]:
            raise CommandError(result["error"])

    def _job(self, what: str) -> None:
        def report(stage: str, fraction: float | None, text: str) -> None:
            line = {"stage": stage, "fraction": fraction, "text": text}
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()

        artifacts = settings.CONSOLE_DIR / "artifacts"
        artifacts.mkdir(exist_ok=True)
        try:
            if what == "clean":
                asyncio.run(job.clean())
                return
            result = {**asyncio.run(job.run(report, artifacts)), "ok": True}
        except (job.Failed, SandboxError) as error:
            result = {"ok": False, "error": str(error)}
        sys.stdout.write(json.dumps({"result": result}) + "\n")


class Steps:
    """A bar a stage on a terminal; elsewhere a line whenever a stage begins and ends."""

    def __init__(self, console: Console) -> None:
        self._bars = Progress(
            TextColumn("{task.fields[stage]:36}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("{task.description}", table_column=None),
            console=console,
            disable=not console.is_terminal,
        )
        self._console = console
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Steps:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def report(self, stage: str, fraction: float | None, text: str) -> None:
        stage = stage or "Note"
        fresh = stage not in self._tasks
        if fresh:
            self._tasks[stage] = self._bars.add_task(text, total=1.0, stage=stage)
        if not self._console.is_terminal and (fresh or fraction == 1.0):
            self._console.print(f"{stage}: {text}", markup=False, highlight=False)
        self._bars.update(self._tasks[stage], description=text[:60], completed=fraction)


def show(result: dict[str, Any]) -> None:
    console = Console()
    table = Table(box=None, show_header=False)
    table.add_row("Building the release took", f"{result['build_s']} s")
    table.add_row("The release holds", f"{result['release_bytes'] / 1e6:.0f} MB")
    table.add_row("A session from it is ready in", f"{result['session_from_release_ms']} ms")
    seconds = result["session_from_base_with_install_s"]
    table.add_row("The same session without a release", f"{seconds} s")
    table.add_row("A command in it takes", f"{result['exec_ms']} ms")
    table.add_row("A snapshot of it takes", f"{result['snapshot_ms']} ms")
    console.print(table)
    for artifact in result["artifacts"]:
        console.print(f"  {artifact['path']}  {artifact['bytes']:,} bytes", highlight=False)
