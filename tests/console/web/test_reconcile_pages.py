"""The reconciler's pages: reports, their findings, and asking for a run."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from console.audit.models import AuditEntry
from console.fleet import tasks
from console.fleet.models import ReconcileReport
from tests.console.cast import World


@pytest.fixture
def handed_on(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(tasks.run_reconcile, "delay", found.append)
    return found


def finding(**changes: Any) -> dict[str, Any]:
    return {
        "kind": "orphan",
        "sandbox_id": "box7",
        "state": "paused",
        "age_s": 7500,
        "session": "gone-talk",
        "session_row": "",
        "space": "",
        "build": "",
        "reason": "No session is bound to it.",
        "action": "would_delete",
        "error": "",
        "cost": "0.21",
        **changes,
    }


def finished(world: World, **changes: Any) -> ReconcileReport:
    now = timezone.now()
    values = {"dry_run": True, "actor": "system", "started_at": now, "finished_at": now, **changes}
    return ReconcileReport.objects.create(backend=world.backend, **values)


def test_a_report_tells_what_was_found_and_what_it_costs(world: World, client: Client) -> None:
    report = finished(
        world,
        seen=3,
        orphaned=2,
        hourly_cost=Decimal("0.1"),
        findings=[
            finding(),
            finding(
                kind="drifted",
                sandbox_id="box8",
                session="talk-1",
                session_row=world.session.pk,
                space=world.space.pk,
                action="kept",
                reason="It has a policy older than revision 2.",
            ),
            finding(sandbox_id="box9", action="not_deleted", error="The backend is busy."),
        ],
    )
    client.force_login(world.people["admin"])
    page = client.get(reverse("web:reconcile-report", args=[report.pk])).content.decode()
    for text in ("box7", "would be deleted", "2 h 5 min", "0.21", "The backend is busy.", "Lab"):
        assert text in page
    assert "0.20" in page, "the estimate an hour"
    assert reverse("web:session", args=[world.session.pk]) in page

    only = client.get(reverse("web:reconcile-report", args=[report.pk]), {"kind": "drifted"})
    assert b"box8" in only.content
    assert b"box7" not in only.content


def test_asking_for_a_run_makes_its_report_and_is_audited(
    world: World,
    client: Client,
    handed_on: list[str],
    django_capture_on_commit_callbacks: Any,
) -> None:
    client.force_login(world.people["admin"])
    address = reverse("web:run-reconcile", args=[world.backend.pk])
    ReconcileReport.objects.all().delete()
    for form, dry_run in (({}, True), ({"dry_run": "1"}, True), ({"dry_run": "0"}, False)):
        with django_capture_on_commit_callbacks(execute=True):
            response = client.post(address, form)
        report = ReconcileReport.objects.first()
        assert report is not None
        assert response.headers["Location"] == reverse("web:reconcile-report", args=[report.pk])
        assert (report.dry_run, report.by_hand, report.state) == (dry_run, True, "queued")
        assert handed_on[-1] == report.pk
        assert AuditEntry.objects.filter(
            action="backend.reconcile", details__report=report.pk, details__dry_run=dry_run
        ).exists()


def test_a_page_that_waits_asks_again_and_then_loads_anew(world: World, client: Client) -> None:
    client.force_login(world.people["admin"])
    address = reverse("web:reconcile-report", args=[world.report.pk])
    assert b"It waits for a worker" in client.get(address).content
    part = client.get(address, headers={"HX-Request": "true"})
    assert b"It waits for a worker" in part.content
    assert b"<html" not in part.content
    ReconcileReport.objects.update(started_at=timezone.now(), finished_at=timezone.now())
    assert client.get(address, headers={"HX-Request": "true"}).headers["HX-Refresh"] == "true"


def test_the_list_is_of_ones_own_tenants_and_offers_runs_to_those_who_may(
    world: World, other_world: World, client: Client
) -> None:
    finished(world, aborted="Redis does not answer.")
    client.force_login(world.people["admin"])
    page = client.get(reverse("web:reconcile"))
    assert page.context["listing"].count == 2
    assert b"not whole" in page.content
    assert b"Run it now" in page.content
    client.force_login(world.people["viewer"])
    page = client.get(reverse("web:reconcile"))
    assert page.context["listing"].count == 0
    assert b"Run it now" not in page.content
