"""`manage.py skill inspect PATH`: what a package is, what it would install, and what to look at first.

Exit status 0 when the package is accepted, 1 when it is refused.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from skills.inspect import inspect

_COLOURS = {"danger": "bold red", "warning": "yellow", "info": "dim"}
_SHOWN_FINDINGS = 40


class Command(BaseCommand):
    help = "Inspect a skill package: a folder, a zip, a tar.gz or a SKILL.md. Nothing of it is run."
    requires_system_checks: list[str] = []  # reads one file: it needs neither database nor settings

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        action = actions.add_parser("inspect", help="verdicts, findings, digest and plan")
        action.add_argument("path", type=Path)
        action.add_argument("--root", help="the skill's folder, where the package holds several")
        action.add_argument(
            "--json", action="store_true", help="one JSON object on standard output"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        report = inspect(options["path"], root=options["root"])
        if options["json"]:
            self.stdout.write(json.dumps(report, ensure_ascii=False, indent=2))
        else:
            _show(report, Console(file=self.stdout, no_color=options["no_color"]))  # type: ignore[arg-type]
        if not report["accepted"]:
            sys.exit(1)


def _show(report: dict[str, Any], out: Console) -> None:
    if not report["accepted"]:
        out.print("[bold red]Refused[/]")
        for problem in report["problems"]:
            out.print(f"  [red]{problem['code']}[/]  {escape(problem['sentence'])}")
        for candidate in report["candidates"]:
            out.print(f"  --root {escape(candidate['root'] or '.')}  {escape(candidate['name'])}")
        return
    skill = report["skill"]
    version = f" {skill['version']}" if skill["version"] else ""
    out.print(f"[bold green]Accepted[/]  [bold]{escape(skill['name'] + version)}[/]")
    out.print(escape(skill["description"]))
    size = f"{len(report['files'])} files, {skill['size_bytes']:,} bytes"
    out.print(f"[dim]{size}, sha256 {report['digest']}[/]")
    _show_verdicts(report, out)
    for note in report["notes"]:
        out.print(f"[cyan]note[/]  {escape(note['sentence'])}")
        if note["repair"]:
            out.print(f"  [red]- {escape(note['repair']['before'])}[/]")
            out.print(f"  [green]+ {escape(note['repair']['after'])}[/]")
    _show_findings(report["findings"], out)
    _show_plan(report["plan"], out)


def _show_verdicts(report: dict[str, Any], out: Console) -> None:
    for verdict in report["verdicts"]:
        mark = "[green]passes[/]" if verdict["ok"] else "[red]fails[/]"
        out.print(f"{verdict['kind']:8} {mark}")
        for problem in verdict["problems"]:
            out.print(f"  [dim]{problem['code']}[/]  {escape(problem['sentence'])}")


def _show_findings(findings: list[dict[str, Any]], out: Console) -> None:
    table = Table("severity", "where", "what", title="Look at these first", title_justify="left")
    for finding in findings[:_SHOWN_FINDINGS]:
        colour = _COLOURS[finding["severity"]]
        place = finding["path"] + (f":{finding['line']}" if finding["line"] else "")
        table.add_row(
            f"[{colour}]{finding['severity']}[/]", escape(place), escape(finding["sentence"])
        )
    if findings:
        out.print(table)
    if len(findings) > _SHOWN_FINDINGS:
        out.print(f"[dim]and {len(findings) - _SHOWN_FINDINGS} more: see --json[/]")


def _show_plan(plan: dict[str, Any], out: Console) -> None:
    table = Table("", "kind", "items", "why", title="Plan", title_justify="left")
    for step in plan["steps"]:
        mark = "[green]on[/]" if step["enabled"] else "[dim]off[/]"
        why = f"{step['reason']} ({step['source']})"
        table.add_row(mark, step["kind"], escape("\n".join(step["items"])), escape(why))
    if plan["steps"]:
        out.print(table)
    for entry in plan["unknown"]:
        out.print(f"[yellow]not covered[/]  {escape(entry['sentence'])}")
    for note in plan["notes"]:
        out.print(f"[cyan]note[/]  {escape(note['source'])}  {escape(note['sentence'])}")
