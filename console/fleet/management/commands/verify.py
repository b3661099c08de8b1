"""Try the eight points against a backend: `manage.py verify BACKEND [--json]`."""

from __future__ import annotations

import json
from typing import Any

from asgiref.sync import async_to_sync
from django.core.management.base import BaseCommand, CommandParser

from console.audit.services import SYSTEM
from console.fleet import verification
from console.fleet.lookup import backend_called
from console.fleet.models import Verification, VerificationState

_MARKS = {"passed": "ok", "failed": "FAILED", "skipped": "skipped"}


class Command(BaseCommand):
    help = "Try the eight points against a backend and keep the report. Exits with 1 if one fails."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("backend", help="its id or name")
        parser.add_argument("--template", default="", help="what to start from")
        parser.add_argument("--json", action="store_true", help="print the report as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        backend = backend_called(options["backend"])
        row = verification._new(backend, options["template"], SYSTEM)
        as_json = options["json"]
        if not as_json:
            self.stdout.write(f"{backend.name}, from {row.template}:")
        row = async_to_sync(verification.verify)(row, on_point=None if as_json else self._print)
        self._print_json(row) if as_json else self._print_end(row)
        if row.state != VerificationState.PASSED:
            raise SystemExit(1)

    def _print(self, item: verification.Compared) -> None:
        point = item.point
        took = f"{point['took_s']:7.1f} s"
        if item.before_s is not None:
            took += f" (was {item.before_s:.1f} s)"
        change = f", {item.change} than before" if item.change else ""
        mark = _MARKS[point["outcome"]]
        self.stdout.write(f"{point['number']} {mark:8}{took}  {point['title']}{change}")
        if point["reason"]:
            self.stdout.write(f"    {point['reason']}")
        for line in point["evidence"]:
            self.stdout.write(f"    - {line}")

    def _print_end(self, row: Verification) -> None:
        if row.problem:
            self.stdout.write(row.problem)
        counts = ", ".join(f"{number} {outcome}" for outcome, number in row.counts.items())
        took_s = sum(point["took_s"] for point in row.points)
        previous = row.previous()
        compared = f"; compared with {previous.pk}" if previous else "; the first run here"
        self.stdout.write(f"{counts}, in {took_s:.1f} s ({row.pk}{compared})")

    def _print_json(self, row: Verification) -> None:
        report = {
            "id": row.pk,
            "backend": row.backend.name,
            "template": row.template,
            "fingerprint": row.fingerprint,
            "state": row.state,
            "problem": row.problem,
            "points": [
                {
                    **item.point,
                    "before": item.before,
                    "before_s": item.before_s,
                    "change": item.change,
                }
                for item in verification.compare(row)
            ],
        }
        self.stdout.write(json.dumps(report, indent=2, ensure_ascii=False))
