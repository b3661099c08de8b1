"""Many rows at once: frozen when chosen, counted before, judged one by one, tried again where they failed."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from console.audit.models import AuditEntry
from console.fleet import sessions as live
from console.fleet.models import Session
from console.tenants.models import ApiKey, Membership, Role
from console.web import tasks
from console.web.bulk import runs
from console.web.models import BulkItem, BulkRun
from sandboxes.errors import Unavailable
from skills.models import Build, Release
from tests.console.cast import World


@pytest.fixture
def admin(world: World, client: Client) -> Client:
    client.force_login(world.people["admin"])
    return client


@pytest.fixture
def handed_on(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What went to a worker."""
    found: list[str] = []
    monkeypatch.setattr(tasks.run_bulk, "delay", found.append)
    return found


@pytest.fixture
def destroyed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Sessions whose sandbox was deleted; “away-…” are on a backend that does not answer."""
    found: list[str] = []

    async def destroy(*, session_id: str, **_: Any) -> bool:
        if session_id.startswith("away"):
            raise Unavailable("The backend does not answer; try again later.")
        if session_id.startswith("odd"):
            raise ZeroDivisionError
        found.append(session_id)
        return True

    monkeypatch.setattr(live, "destroy", destroy)
    return found


def make_sessions(world: World, *names: str, **values: Any) -> None:
    Session.objects.bulk_create(
        Session(space=world.space, backend=world.backend, session_id=name, **values)
        for name in names
    )


def choose(
    client: Client, *rows: str, action: str = "session.destroy", query: str = "", **form: str
) -> Any:
    return client.post(
        reverse("web:bulk") + query,
        {"list": _LIST_OF[action.partition(".")[0]], "action": action, "row": rows, **form},
    )


_LIST_OF = {
    "session": "sessions",
    "build": "builds",
    "release": "releases",
    "key": "keys",
    "skill": "catalog",
}


def run_of(response: Any) -> BulkRun:
    assert response.status_code == 302, response.content.decode()
    return BulkRun.objects.get(pk=response.headers["Location"].split("/")[-2])


def outcomes(run: BulkRun) -> dict[str, tuple[str, str]]:
    return {item.label: (item.outcome, item.reason) for item in run.items.all()}


def done(client: Client, run: BulkRun, **form: str) -> BulkRun:
    """Confirm, and be the worker."""
    response = client.post(reverse("web:bulk-start", args=[run.pk]), form)
    assert response.status_code == 302, response.content.decode()
    runs.work(run.pk)
    run.refresh_from_db()
    return run


def test_nothing_happens_before_it_is_confirmed_with_live_counts(
    world: World, admin: Client, destroyed: list[str], handed_on: list[str]
) -> None:
    make_sessions(world, "asleep", state="paused")
    make_sessions(world, "over", state="destroyed")
    everything = [row.pk for row in Session.objects.all()]

    run = run_of(choose(admin, *everything))
    text = admin.get(reverse("web:bulk-run", args=[run.pk])).content.decode()

    assert "Destroy 3 sessions?" in text
    assert "Running: 1, paused: 1." in text
    assert "Without a sandbox already: 1." in text
    assert "asleep" in text
    runs.work(run.pk)
    assert destroyed == []

    Session.objects.filter(session_id="asleep").update(state="active")
    text = admin.get(reverse("web:bulk-run", args=[run.pk])).content.decode()
    assert "Running: 2, paused: 0." in text, "counted now, not when chosen"


def test_each_row_has_its_outcome_and_the_failed_are_tried_again(
    world: World, admin: Client, destroyed: list[str]
) -> None:
    make_sessions(world, "fine", "away-1", "odd-1")
    make_sessions(world, "over", state="destroyed")

    run = done(admin, run_of(choose(admin, all="1")))

    assert outcomes(run) == {
        "talk-1": ("done", ""),
        "fine": ("done", ""),
        "away-1": ("refused", "The backend does not answer; try again later."),
        "odd-1": (
            "failed",
            "Something went wrong here; the server's log tells what. Try it again.",
        ),
        "over": ("done", "It was destroyed before."),
    }
    assert run.finished_at is not None
    text = admin.get(reverse("web:bulk-run", args=[run.pk])).content.decode()
    assert "The backend does not answer" in text
    text = admin.get(reverse("web:bulk-run", args=[run.pk]) + "?outcome=failed").content.decode()
    assert "odd-1" in text
    assert "away-1" not in text

    again = run_of(admin.post(reverse("web:bulk-retry", args=[run.pk])))
    assert set(outcomes(again)) == {"away-1", "odd-1"}
    assert again.started_at is None, "it is confirmed like the first"


def test_every_row_is_in_the_audit_log_with_its_outcome(
    world: World, admin: Client, destroyed: list[str]
) -> None:
    make_sessions(world, "away-1")

    run = done(admin, run_of(choose(admin, all="1")))

    entries = AuditEntry.objects.filter(request_id=run.pk).order_by("target")
    assert [(e.action, e.target, e.outcome, e.actor) for e in entries] == [
        ("session.destroy", "away-1", "failed", "admin-acme"),
        ("session.destroy", "talk-1", "done", "admin-acme"),
    ]
    assert entries[0].space == world.space
    assert "does not answer" in entries[0].details["reason"]


def test_all_that_match_are_those_of_the_filters_as_they_were(
    world: World, admin: Client, destroyed: list[str]
) -> None:
    make_sessions(world, *(f"old-{n}" for n in range(120)), state="paused")

    run = run_of(choose(admin, all="1", query="?state=paused"))
    make_sessions(world, "came-later", state="paused")
    done(admin, run, count="120")

    assert sorted(destroyed) == sorted(f"old-{n}" for n in range(120))


def test_a_filter_that_is_none_chooses_nothing(world: World, admin: Client) -> None:
    response = choose(admin, all="1", query="?state=asleep")

    assert response.headers["Location"] == "/sessions/"
    assert not BulkRun.objects.exists(), "else it would be everything"


def test_no_row_chosen_is_said(world: World, admin: Client) -> None:
    response = admin.post(
        reverse("web:bulk") + "?state=active",
        {"list": "sessions", "action": "session.pause"},
        follow=True,
    )

    assert response.redirect_chain == [("/sessions/?state=active", 302)]
    assert "Choose at least one row first." in response.content.decode()


def test_many_that_can_not_come_back_are_confirmed_by_their_number(
    world: World, admin: Client, destroyed: list[str]
) -> None:
    make_sessions(world, *(f"s-{n}" for n in range(24)))
    run = run_of(choose(admin, all="1"))
    start = reverse("web:bulk-start", args=[run.pk])

    for wrong in ({}, {"count": "24"}):
        response = admin.post(start, wrong)
        assert response.status_code == 422
        assert "That is not 25; nothing was done." in response.content.decode()
    runs.work(run.pk)
    assert destroyed == []

    done(admin, run, count=" 25 ")
    assert len(destroyed) == 25


def test_another_tenants_rows_are_as_if_not_there(
    world: World, other_world: World, admin: Client, destroyed: list[str]
) -> None:
    run = run_of(choose(admin, other_world.session.pk, world.session.pk))
    assert [item.target for item in run.items.all()] == [world.session.pk]

    response = choose(admin, other_world.session.pk)
    assert response.headers["Location"] == "/sessions/"


def test_a_row_that_may_not_be_acted_on_is_refused_with_the_reason(
    world: World, client: Client, destroyed: list[str]
) -> None:
    viewer = world.people["viewer"]
    client.force_login(viewer)

    run = done(client, run_of(choose(client, world.session.pk)))

    ((outcome, reason),) = outcomes(run).values()
    assert outcome == "refused"
    assert "You may not do this here" in reason
    assert AuditEntry.objects.get(request_id=run.pk).outcome == "denied"
    assert destroyed == []


def test_rights_count_when_the_turn_comes(
    world: World, client: Client, destroyed: list[str]
) -> None:
    operator = world.people["operator"]
    client.force_login(operator)
    run = run_of(choose(client, world.session.pk))
    client.post(reverse("web:bulk-start", args=[run.pk]))

    Membership.objects.filter(user=operator).update(role=Role.VIEWER)
    runs.work(run.pk)

    assert outcomes(run)["talk-1"][0] == "refused"
    assert destroyed == []

    Membership.objects.filter(user=operator).delete()
    again = run_of(client.post(reverse("web:bulk-retry", args=[run.pk])))
    done(client, again)
    assert outcomes(again)["talk-1"] == ("refused", "It is not there any more.")


def test_a_person_who_was_locked_out_acts_no_more(
    world: World, admin: Client, destroyed: list[str]
) -> None:
    run = run_of(choose(admin, world.session.pk))
    runs.start(run)
    world.people["admin"].is_active = False
    world.people["admin"].save()

    runs.work(run.pk)

    assert outcomes(run)["talk-1"][0] == "stopped"
    assert destroyed == []


@pytest.mark.parametrize("step", ["bulk-run", "bulk-start", "bulk-stop", "bulk-retry"])
def test_a_run_is_its_makers_alone(step: str, world: World, admin: Client) -> None:
    run = run_of(choose(admin, world.session.pk))
    admin.force_login(world.people["owner"])

    url = reverse(f"web:{step}", args=[run.pk])
    response = admin.get(url) if step == "bulk-run" else admin.post(url)

    assert response.status_code == 404


@pytest.mark.parametrize(
    "form",
    [
        {"list": "nothing", "action": "session.destroy"},
        {"list": "sessions", "action": "key.revoke"},
        {"list": "audit", "action": "audit.delete"},
        {},
    ],
)
def test_what_no_list_offers_is_not_found(
    form: dict[str, str], world: World, admin: Client
) -> None:
    assert admin.post(reverse("web:bulk"), {**form, "all": "1"}).status_code == 404


def test_a_run_can_be_stopped_on_its_way(
    world: World, admin: Client, destroyed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_BATCH", 5)
    monkeypatch.setattr(runs, "_SLICE_S", 0.0)
    make_sessions(world, *(f"s-{n}" for n in range(17)))
    run = run_of(choose(admin, all="1"))
    admin.post(reverse("web:bulk-start", args=[run.pk]))

    runs.work(run.pk)
    run.refresh_from_db()
    assert run.finished_at is None
    text = admin.get(reverse("web:bulk-run", args=[run.pk])).content.decode()
    assert "of 18 are still to be done" in text

    admin.post(reverse("web:bulk-stop", args=[run.pk]))
    before = len(destroyed)
    runs.work(run.pk)

    assert len(destroyed) == before < 18
    counts = run.counts()
    assert counts["done"] == before
    assert counts["stopped"] == 18 - before
    assert counts["waiting"] == 0


def test_a_run_goes_on_slice_by_slice_and_after_a_worker_died(
    world: World,
    admin: Client,
    destroyed: list[str],
    monkeypatch: pytest.MonkeyPatch,
    handed_on: list[str],
    django_capture_on_commit_callbacks: Any,
) -> None:
    monkeypatch.setattr(runs, "_BATCH", 5)
    monkeypatch.setattr(runs, "_SLICE_S", 0.0)
    make_sessions(world, *(f"s-{n}" for n in range(11)))
    run = run_of(choose(admin, all="1"))
    with django_capture_on_commit_callbacks(execute=True):
        admin.post(reverse("web:bulk-start", args=[run.pk]))
        admin.post(reverse("web:bulk-start", args=[run.pk]))
    assert handed_on == [run.pk], "a second click starts it no second time"

    with django_capture_on_commit_callbacks(execute=True):
        runs.work(run.pk)
    assert handed_on == [run.pk] * 2, "the rest goes on"
    assert len(destroyed) == 5

    now = timezone.now()
    BulkRun.objects.filter(pk=run.pk).update(taken_until=now + timedelta(minutes=5))
    runs.work(run.pk)
    assert len(destroyed) == 5, "another worker is at it"
    with django_capture_on_commit_callbacks(execute=True):
        runs.sweep()
    assert handed_on == [run.pk] * 2

    BulkRun.objects.filter(pk=run.pk).update(taken_until=now - timedelta(minutes=5))
    with django_capture_on_commit_callbacks(execute=True):
        runs.sweep()
    assert handed_on == [run.pk] * 3, "that worker died"
    while BulkRun.objects.filter(pk=run.pk, finished_at=None).exists():
        runs.work(run.pk)
    assert sorted(destroyed) == sorted(["talk-1", *(f"s-{n}" for n in range(11))])


def test_old_runs_are_forgotten(world: World, admin: Client) -> None:
    fresh, old, unconfirmed = (run_of(choose(admin, world.session.pk)) for _ in range(3))
    long_ago = timezone.now() - timedelta(days=31)
    BulkRun.objects.filter(pk=old.pk).update(started_at=long_ago, finished_at=long_ago)
    BulkRun.objects.filter(pk=unconfirmed.pk).update(created_at=timezone.now() - timedelta(days=2))

    runs.sweep()

    assert list(BulkRun.objects.all()) == [fresh]
    assert BulkItem.objects.count() == 1


def test_one_go_has_a_limit_that_is_said(
    world: World, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MOST_ROWS", 3)
    make_sessions(world, "a", "b", "c", "d")

    run = run_of(choose(admin, all="1"))

    assert run.items.count() == 3
    text = admin.get(reverse("web:bulk-run", args=[run.pk])).content.decode()
    assert "One go takes 3 rows; 2 more match" in text


def test_a_session_without_a_sandbox_is_not_paused(world: World, admin: Client) -> None:
    Session.objects.update(state="lost")

    run = done(admin, run_of(choose(admin, world.session.pk, action="session.pause")))

    assert outcomes(run)["talk-1"] == (
        "refused",
        "It has no sandbox, so there is nothing to pause.",
    )


def test_builds_are_cancelled_and_tried_again(world: World, admin: Client) -> None:
    queued = Build.objects.create(space=world.space)
    both = [queued.pk, world.build.pk]

    run = done(admin, run_of(choose(admin, *both, action="build.cancel")))
    queued.refresh_from_db()
    assert queued.state == "cancelled"
    (refused,) = [reason for outcome, reason in outcomes(run).values() if outcome == "refused"]
    assert "is over" in refused

    text = admin.get(
        reverse("web:bulk-run", args=[run_of(choose(admin, *both, action="build.retry")).pk])
    ).content.decode()
    assert "Failed or cancelled: 2, in 1 space" in text


def test_releases_are_deleted_unless_they_are_needed(world: World, admin: Client) -> None:
    serving = Release.objects.create(
        space=world.space,
        generation=2,
        backend=world.backend,
        fingerprint="f",
        state="active",
        planned_name="two",
        snapshot_id="snap-2",
    )
    world.space.current_release = serving
    world.space.save()

    run = run_of(choose(admin, all="1", action="release.delete"))
    text = admin.get(reverse("web:bulk-run", args=[run.pk])).content.decode()
    assert "carrying sessions just now, so refused: 1." in text
    done(admin, run)

    found = outcomes(run)
    assert found["Lab: release 1"] == ("done", "")
    assert "is what this space serves" in found["Lab: release 2"][1]
    world.release.refresh_from_db()
    assert world.release.delete_requested_at is not None


def test_keys_are_revoked(world: World, admin: Client) -> None:
    ApiKey.objects.update(last_used_at=timezone.now())
    run = run_of(choose(admin, world.key.pk, action="key.revoke"))
    text = admin.get(reverse("web:bulk-run", args=[run.pk])).content.decode()
    assert "Used in the last seven days: 1." in text

    done(admin, run)

    world.key.refresh_from_db()
    assert world.key.revoked_at is not None
    assert AuditEntry.objects.filter(action="key.revoke", request_id=run.pk).count() == 1


def test_skills_are_archived(world: World, admin: Client) -> None:
    run = done(admin, run_of(choose(admin, world.version.pk, action="skill.archive")))

    assert outcomes(run) == {"demo #1": ("done", "")}
    world.skill.refresh_from_db()
    assert world.skill.archived_at is not None


def test_actions_are_offered_only_to_those_who_may_somewhere(world: World, client: Client) -> None:
    def offered(person: str, name: str) -> list[str]:
        client.force_login(world.people[person])
        text = client.get(reverse(f"web:{name}")).content.decode()
        return re.findall(r'name="action" value="([^"]+)"', text)

    assert offered("viewer", "sessions") == []
    assert "session.pause" in offered("operator", "sessions")
    assert offered("operator", "releases") == []
    assert offered("owner", "builds") == ["build.cancel", "build.retry"]
