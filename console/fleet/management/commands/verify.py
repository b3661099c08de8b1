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
        row = async_to_sync(verification.verify)(row)
        self._print_json(row) if options["json"] else self._print(row)
        if row.state != VerificationState.PASSED:
            raise SystemExit(1)

    def _print(self, row: Verification) -> None:
        for item in verification.compare(row):
            point = item.point
            change = f" ({item.change} than before)" if item.change else ""
            mark = _MARKS[point["outcome"]]
            self.stdout.write(
                f"{point['number']} {mark:8}{point['took_s']:7.1f} s  {point['title']}{change}"
            )
            if point["reason"]:
                self.stdout.write(f"    {point['reason']}")
            for line in point["evidence"]:
                self.stdout.write(f"    - {line}")
        if row.problem:
            self.stdout.write(row.problem)

    def _print_json(self, row: Verification) -> None:
        report = {
            "id": row.pk,
            "backend": row.backend.name,
            "template": row.template,
            "fingerprint": row.fingerprint,
            "state": row.state,
            "problem": row.problem,
            "points": [
                {**item.point, "before": item.before, "change": item.change}
                for item in verification.compare(row)
            ],
        }
        self.stdout.write(json.dumps(report, indent=2, ensure_ascii=False))
