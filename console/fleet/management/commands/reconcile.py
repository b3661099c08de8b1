"""`manage.py reconcile`: compare backends with what needs their sandboxes, now and here."""

from __future__ import annotations

import argparse
import json
from typing import Any

from asgiref.sync import async_to_sync
from django.core.management.base import BaseCommand, CommandError
from django.core.serializers.json import DjangoJSONEncoder
from django.forms.models import model_to_dict

from console.audit.services import Actor
from console.fleet.models import Backend, ReconcileReport
from console.fleet.reconcile import reconcile
from console.fleet.runtime import Runtime

_COUNTS = (
    "seen",
    "bound",
    "building",
    "paused",
    "orphaned",
    "claimable",
    "stuck",
    "unverifiable",
    "drifted",
    "deleted",
    "corrected",
)


class Command(BaseCommand):
    help = "Find the sandboxes that no session and no build needs, and delete those that surely are nobody's."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--backend", metavar="ID", help="only this one; by its id or its name")
        parser.add_argument("--dry-run", action="store_true", help="delete nothing")
        parser.add_argument("--json", action="store_true", help="print the reports as JSON")

    def handle(self, **options: Any) -> None:
        backends = Backend.objects.all()
        if wanted := options["backend"]:
            backends = backends.filter(pk=wanted) or backends.filter(name=wanted)
            if not backends:
                known = ", ".join(f"{row.pk} ({row.name})" for row in Backend.objects.all())
                raise CommandError(f"There is no backend {wanted}; there are: {known or 'none'}.")
        reports = async_to_sync(_reconcile)(list(backends), options["dry_run"])
        if options["json"]:
            rows = [{"backend_name": name, **_json(report)} for name, report in reports]
            self.stdout.write(json.dumps(rows, indent=2, cls=DjangoJSONEncoder))
        else:
            for name, report in reports:
                self._print(name, report)
        if any(report is None or report.aborted for _, report in reports):
            raise CommandError("Not everything could be compared; see above.")

    def _print(self, name: str, report: ReconcileReport | None) -> None:
        if report is None:
            self.stdout.write(f"{name}: is being compared already; look at that run's report.")
            return
        counts = ", ".join(f"{getattr(report, count)} {count}" for count in _COUNTS)
        self.stdout.write(f"{name}: {counts}{' (dry run)' if report.dry_run else ''}")
        if report.aborted:
            self.stdout.write(f"  {report.aborted}")
        for row in report.findings:
            whose = row["session"] or row["build"]
            self.stdout.write(
                f"  {row['kind']:12} {row['sandbox_id']} {row['state']} {row['action']}"
                f"{' of ' + whose if whose else ''}: {row['error'] or row['reason']}"
            )
        if report.findings_left_out:
            self.stdout.write(f"  … and {report.findings_left_out} more")


def _json(report: ReconcileReport | None) -> dict[str, Any]:
    return {} if report is None else {"id": report.pk, **model_to_dict(report)}


async def _reconcile(
    backends: list[Backend], dry_run: bool
) -> list[tuple[str, ReconcileReport | None]]:
    async with Runtime() as runtime:
        return [
            (
                backend.name,
                await reconcile(
                    runtime=runtime, backend=backend, dry_run=dry_run, actor=Actor(name="manage.py")
                ),
            )
            for backend in backends
        ]
