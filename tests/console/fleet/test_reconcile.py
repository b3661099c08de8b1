"""One run over a backend: what it finds, what it deletes, what it tells."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from redis import Redis as BlockingRedis

from console.audit.services import SYSTEM
from console.fleet import reconcile as service
from console.fleet import tasks
from console.fleet.models import Backend, ReconcileReport, Session
from console.fleet.policies import apply_now
from console.fleet.reconcile import prune_reports, reconcile
from console.fleet.runtime import Runtime
from console.policies.models import NetworkPolicyRevision
from console.tenants.models import Space
from sandboxes.errors import Capacity, Unavailable
from sandboxes.network import NetworkPolicy
from sandboxes.sessions import (
    SCHEMA_VERSION,
    TAG_BUILD,
    TAG_SCHEMA,
    TAG_SESSION,
    SessionKey,
    ownership_tags,
)
from sandboxes.testing.simulated import SimulatedProvider
from sandboxes.types import CreateRequest, SandboxState, TimeoutPolicy
from skills.models import Build, BuildState, Release, ReleaseState
from tests.console.fleet.loop import in_loop, resolve

OLD = datetime.now(UTC) - timedelta(hours=5)


@pytest.fixture(autouse=True)
def long_lived_store(redis: BlockingRedis, settings: Any) -> None:
    """Redis has been here for a day, so a missing binding means something."""
    then = (datetime.now(UTC) - timedelta(days=1)).timestamp()
    redis.set(f"{settings.REDIS_NAMESPACE}:sessions:since", repr(then))


def leave(
    account: SimulatedProvider, space: Space, session_id: str = "gone", **tags: str | None
) -> str:
    """A sandbox with all our tags that nobody is bound to."""
    key = SessionKey(space.tenant_id, space.pk, session_id)
    all_tags = {**ownership_tags(key, space.backend_id), TAG_SCHEMA: SCHEMA_VERSION, **tags}
    request = CreateRequest(
        template="base",
        network=NetworkPolicy(outbound=True, inbound=False),
        timeout=TimeoutPolicy(timeout_s=3600),
        metadata={name: value for name, value in all_tags.items() if value is not None},
    )
    return account.start(request, started_at=OLD).id


async def run(space: Space, *, dry_run: bool = False, **options: Any) -> ReconcileReport:
    backend = await Backend.objects.aget(pk=space.backend_id)
    async with Runtime() as runtime:
        report = await reconcile(
            runtime=runtime, backend=backend, dry_run=dry_run, actor=SYSTEM, **options
        )
    assert report is not None
    return await ReconcileReport.objects.aget(pk=report.pk)


def found(report: ReconcileReport) -> dict[str, tuple[str, str]]:
    return {row["sandbox_id"]: (row["kind"], row["action"]) for row in report.findings}


@in_loop
async def test_orphans_are_deleted_running_and_paused_and_a_dry_run_only_tells(
    space: Space, account: SimulatedProvider
) -> None:
    async with Runtime() as runtime:
        bound = await resolve(runtime, space)
    running, paused = leave(account, space, "a"), leave(account, space, "b")
    account.set_state(paused, SandboxState.PAUSED)

    tried = await run(space, dry_run=True)
    assert (tried.seen, tried.bound, tried.orphaned, tried.deleted) == (3, 1, 2, 0)
    assert found(tried) == dict.fromkeys([running, paused], ("orphan", "would_delete"))
    assert len(account.live()) == 3

    done = await run(space)
    assert found(done) == dict.fromkeys([running, paused], ("orphan", "deleted"))
    assert (done.deleted, done.state) == (2, "done")
    assert [sandbox.id for sandbox in account.live()] == [bound.sandbox.id]
    row = next(row for row in done.findings if row["sandbox_id"] == running)
    assert row["session"] == "a"
    assert row["age_s"] >= 5 * 3600 - 60
    assert row["reason"]


@in_loop
async def test_doubt_keeps_a_sandbox(space: Space, account: SimulatedProvider) -> None:
    untagged = leave(account, space, **{TAG_SCHEMA: None})
    account.set_state(leave(account, space, "stuck"), SandboxState.TRANSITIONING)
    report = await run(space)
    assert (report.unverifiable, report.stuck, report.deleted) == (1, 1, 0)
    assert found(report)[untagged] == ("unverifiable", "kept")


@in_loop
async def test_a_session_that_lost_its_binding_keeps_its_sandbox(
    space: Space, account: SimulatedProvider, redis: BlockingRedis, settings: Any
) -> None:
    async with Runtime() as runtime:
        live = await resolve(runtime, space)
    redis.delete(*redis.keys("*:binding"))
    settings.SKILLYARD_ORPHAN_GRACE_S = 0.0
    report = await run(space)
    assert found(report) == {live.sandbox.id: ("claimable", "kept")}
    assert report.findings[0]["session_row"] == (await Session.objects.aget()).pk


@in_loop
async def test_builds_that_run_keep_their_sandbox_and_those_that_are_over_do_not(
    space: Space, account: SimulatedProvider
) -> None:
    running = await Build.objects.acreate(space=space, state=BuildState.RUNNING)
    ended = timezone.now() - timedelta(hours=1)
    over = await Build.objects.acreate(space=space, state=BuildState.FAILED, finished_at=ended)
    kept, gone = (
        leave(account, space, **{TAG_SESSION: None, TAG_BUILD: build.pk})
        for build in (running, over)
    )
    report = await run(space)
    assert (report.building, report.deleted) == (1, 1)
    assert found(report) == {gone: ("orphan", "deleted")}
    assert report.findings[0]["build"] == over.pk
    assert kept in account.sandboxes


@in_loop
async def test_drift_is_told_by_tags_and_by_rows(space: Space, account: SimulatedProvider) -> None:
    async with Runtime() as runtime:
        live = await resolve(runtime, space)
        assert (await run(space)).drifted == 0
        revision = await NetworkPolicyRevision.objects.alatest("number")
        newer = await NetworkPolicyRevision.objects.acreate(
            space=space, number=revision.number + 1, allow=["192.0.2.0/24"]
        )
        report = await run(space)
        assert found(report) == {live.sandbox.id: ("drifted", "kept")}
        assert "older than revision 2" in report.findings[0]["reason"]
        # Its tags stay, but now it has the policy.
        await apply_now(runtime=runtime, space=space, revision=newer, actor=SYSTEM)
        assert (await run(space)).drifted == 0
        release = await Release.objects.acreate(
            space=space,
            generation=1,
            backend=space.backend,
            fingerprint=space.backend.fingerprint,
            state=ReleaseState.ACTIVE,
            planned_name="one",
            snapshot_id="snap",
        )
        await Space.objects.aupdate(current_release=release)
        report = await run(space)
        assert "another release" in report.findings[0]["reason"]


@in_loop
async def test_one_backend_is_compared_once_at_a_time(
    space: Space, account: SimulatedProvider
) -> None:
    asked = await ReconcileReport.objects.acreate(
        backend=space.backend, dry_run=True, by_hand=True, actor="alice"
    )
    others: list[ReconcileReport | None] = []

    async def meanwhile(op: str, phase: str, sandbox_id: str) -> None:
        if (op, phase) == ("list", "before") and not others:
            async with Runtime() as second:
                for report in (None, asked):
                    others.append(
                        await reconcile(
                            runtime=second,
                            backend=space.backend,
                            dry_run=False,
                            actor=SYSTEM,
                            report=report,
                        )
                    )

    account.intercept = meanwhile
    first = await run(space)
    assert first.state == "done"
    assert others == [None, None]
    await asked.arefresh_from_db()
    assert "Another run was under way" in asked.aborted
    assert await ReconcileReport.objects.acount() == 2, "the beat's second run left no report"
    assert (await run(space)).state == "done", "the lock was given back"


@in_loop
async def test_a_run_whose_process_died_is_closed_by_the_next(space: Space) -> None:
    dead = await ReconcileReport.objects.acreate(
        backend=space.backend, dry_run=False, actor="system", started_at=timezone.now()
    )
    assert dead.state == "running"
    await run(space)
    await dead.arefresh_from_db()
    assert (dead.state, dead.aborted) == ("failed", "Its process ended before it was done.")


@in_loop
async def test_without_redis_nothing_is_looked_at(
    space: Space, account: SimulatedProvider, settings: Any, tmp_path: Any
) -> None:
    settings.REDIS_URL = f"unix://{tmp_path}/nowhere.sock"
    leave(account, space)
    report = await run(space)
    assert "Redis" in report.aborted
    assert account.calls == {}


@in_loop
async def test_an_account_that_changes_meanwhile_saves_its_sandboxes(
    space: Space, account: SimulatedProvider
) -> None:
    orphan = leave(account, space)

    async def change(op: str, phase: str, sandbox_id: str) -> None:
        if (op, phase) == ("list", "after"):
            await Backend.objects.aupdate(
                settings={"account": "one", "api_url": "https://elsewhere"}
            )

    account.intercept = change
    report = await run(space)
    assert found(report) == {orphan: ("unverifiable", "kept")}


@in_loop
async def test_a_cordoned_backend_loses_nothing(space: Space, account: SimulatedProvider) -> None:
    leave(account, space)
    await Backend.objects.aupdate(cordoned_until=timezone.now() + timedelta(minutes=5))
    report = await run(space)
    assert (report.orphaned, report.deleted) == (1, 0)
    assert "nothing was deleted" in report.aborted
    assert report.findings[0]["action"] == "not_deleted"


@in_loop
async def test_what_nobody_uses_has_a_price(space: Space, account: SimulatedProvider) -> None:
    await Backend.objects.aupdate(hourly_cost=Decimal("0.1"))
    async with Runtime() as runtime:
        account.set_state((await resolve(runtime, space)).sandbox.id, SandboxState.PAUSED)
    leave(account, space)
    report = await run(space, dry_run=True)
    assert (report.idle, report.idle_cost_per_hour) == (2, Decimal("0.2"))
    assert report.findings[0]["cost"] == "0.50"


@in_loop
async def test_a_report_holds_so_many_findings_and_counts_the_rest(
    space: Space, account: SimulatedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MOST_FINDINGS", 3)
    for number in range(5):
        leave(account, space, f"s{number}")
    report = await run(space, dry_run=True)
    assert (len(report.findings), report.findings_left_out, report.orphaned) == (3, 2, 5)


@in_loop
async def test_a_deletion_that_fails_is_told_and_the_others_go_on(
    space: Space, account: SimulatedProvider
) -> None:
    leave(account, space, "a")
    leave(account, space, "b")
    account.fail_next("delete", Capacity("Too many deletions; try again in a minute."))
    report = await run(space)
    assert report.deleted == 1
    assert sorted(row["action"] for row in report.findings) == ["deleted", "not_deleted"]
    assert {row["error"] for row in report.findings} == {
        "",
        "Too many deletions; try again in a minute.",
    }


@in_loop
async def test_a_backend_that_is_down_is_told_in_one_sentence(
    space: Space, account: SimulatedProvider
) -> None:
    account.fail_next("list", Unavailable("The backend does not answer; check it."))
    report = await run(space)
    assert (report.state, report.aborted) == ("failed", "The backend does not answer; check it.")


def test_old_reports_go_and_those_that_tell_something_stay_longer(space: Space) -> None:
    now = timezone.now()
    ages = {"quiet": 2, "deleting": 2, "asked": 2, "ancient": 91, "fresh": 0}
    made = {}
    for name, days in ages.items():
        made[name] = ReconcileReport.objects.create(
            backend=space.backend,
            dry_run=False,
            actor=name,
            by_hand=name in ("asked", "ancient"),
            deleted=1 if name == "deleting" else 0,
        )
        ReconcileReport.objects.filter(pk=made[name].pk).update(
            created_at=now - timedelta(days=days)
        )
    assert prune_reports(now=now) == 2
    assert set(ReconcileReport.objects.values_list("actor", flat=True)) == {
        "deleting",
        "asked",
        "fresh",
    }
    made["asked"].refresh_from_db()
    assert "No worker took it up" in made["asked"].aborted


def test_the_command_prints_json_and_obeys_dry_run(
    space: Space, account: SimulatedProvider
) -> None:
    orphan = leave(account, space)
    out = StringIO()
    call_command("reconcile", "--dry-run", "--json", "--backend", "Here", stdout=out)
    (report,) = json.loads(out.getvalue())
    assert (report["backend_name"], report["orphaned"], report["deleted"]) == ("Here", 1, 0)
    assert report["findings"][0]["sandbox_id"] == orphan

    out = StringIO()
    call_command("reconcile", stdout=out)
    assert f"orphan       {orphan} running deleted of gone" in out.getvalue()
    assert account.live() == []


def test_the_command_names_the_backends_there_are(space: Space) -> None:
    with pytest.raises(CommandError, match=r"There is no backend x; there are: bkd\S+ \(Here\)"):
        call_command("reconcile", "--backend", "x")


def test_the_command_fails_when_a_backend_does(space: Space, account: SimulatedProvider) -> None:
    account.fail_next("list", Unavailable("The backend does not answer; check it."))
    out = StringIO()
    with pytest.raises(CommandError):
        call_command("reconcile", stdout=out)
    assert "The backend does not answer" in out.getvalue()


def test_the_beat_hands_each_backend_on_and_a_request_runs_once(
    space: Space, account: SimulatedProvider, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        tasks.reconcile_backend, "apply_async", lambda args, **options: handed.append(args)
    )
    tasks.reconcile_backends()
    assert handed == [(space.backend_id,)]
    tasks.reconcile_backend(space.backend_id)
    assert ReconcileReport.objects.get().actor == "system"

    report = ReconcileReport.objects.create(
        backend=space.backend, dry_run=True, by_hand=True, actor="alice"
    )
    calls = account.calls["list"]
    tasks.run_reconcile(report.pk)
    tasks.run_reconcile(report.pk)
    assert account.calls["list"] == calls + 1
    report.refresh_from_db()
    assert (report.state, report.actor) == ("done", "alice")
    for entry in settings.CELERY_BEAT_SCHEDULE.values():
        if entry["task"].startswith("console.fleet"):
            assert hasattr(tasks, entry["task"].rpartition(".")[2])
