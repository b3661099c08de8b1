"""The overview: for whom it shows what, its live part, first steps, and what it costs the database."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from console.audit.services import SYSTEM
from console.fleet import samples
from console.fleet.models import Backend, ReconcileReport, Sampling, Session, SessionSample
from console.fleet.samples import take_sample
from console.fleet.services import create_space
from console.policies.models import NetworkPolicyRevision
from console.tenants.models import Space, User
from skills.models import Build, BuildState, Release, ReleaseState
from tests.console.cast import World

OVERVIEW = "/"
MOST_QUERIES = 15
MANY = 10_000


def overview(client: Client, person: User, **query: str) -> Any:
    client.force_login(person)
    response = client.get(OVERVIEW, query)
    assert response.status_code == 200
    return response


def space_page(client: Client, world: World, person: str = "viewer", **query: str) -> str:
    client.force_login(world.people[person])
    response = client.get(reverse("web:space", args=[world.space.pk]), query)
    assert response.status_code == 200
    return str(response.content.decode())


def more_sessions(world: World, count: int, state: str, **values: Any) -> None:
    here = {"space": world.space, "backend": world.backend, **values}
    Session.objects.bulk_create(
        Session(session_id=f"{state}-{n}-{values}", state=state, **here) for n in range(count)
    )


def test_it_counts_what_runs_and_draws_what_ran(world: World, client: Client) -> None:
    more_sessions(world, 3, "paused")
    take_sample(now=timezone.now() - timedelta(hours=2))

    response = overview(client, world.people["admin"])

    page = response.content.decode()
    found = response.context["dashboard"]
    assert (found.sessions.active, found.sessions.paused) == (1, 3)
    (chart,) = found.sessions_charts
    assert [column.cells for column in chart.columns] == [["1", "3", "0"], ["1", "3", "0"]]
    assert '<svg class="chart" role="img" aria-labelledby="sessions-by-state-title' in page
    assert "1 run and 3 are paused now" in page
    assert "style=" not in page.split("<body", 1)[1], "the CSP forbids it"


def test_backends_are_told_apart_where_there_are_several(world: World, client: Client) -> None:
    there = Backend.objects.create(tenant=world.tenant, name="There", provider="local")
    Session.objects.create(space=world.space, session_id="o", backend=there)
    take_sample(now=timezone.now() - timedelta(hours=2))

    charts = overview(client, world.people["admin"]).context["dashboard"].sessions_charts

    assert [chart.id for chart in charts] == ["sessions-by-state", "sessions-by-backend"]
    assert charts[1].heads == ["Here", "There"]


@pytest.mark.parametrize(("period", "hours"), [("24h", 23), ("7d", 7 * 24 - 1), ("30d", 719)])
def test_the_period_is_in_the_address(
    period: str, hours: int, world: World, client: Client
) -> None:
    for ago in (hours, hours + 2):
        take_sample(now=timezone.now() - timedelta(hours=ago))

    response = overview(client, world.people["admin"], period=period)

    (chart,) = response.context["dashboard"].sessions_charts
    assert len(chart.columns) == 2, "the one that is not older, and the present"
    assert f'href="/?period={period}" hx-get="/?period={period}"' in response.content.decode()
    assert response.content.decode().count('aria-current="true"') == 1


def test_an_unknown_period_is_a_day(world: World, client: Client) -> None:
    response = overview(client, world.people["admin"], period="<script>")

    assert response.context["dashboard"].period.key == "24h"


def test_the_live_part_comes_alone(world: World, client: Client) -> None:
    client.force_login(world.people["admin"])
    for url in (OVERVIEW, reverse("web:space", args=[world.space.pk])):
        response = client.get(url, {"period": "7d"}, headers={"HX-Request": "true"})

        page = response.content.decode()
        assert page.lstrip().startswith('<div id="live"')
        assert 'hx-trigger="half-minute from:body"' in page
        assert f'hx-get="{url}?period=7d"' in page


def test_going_back_to_a_forgotten_page_gets_the_whole_of_it(world: World, client: Client) -> None:
    client.force_login(world.people["admin"])
    back = {"HX-Request": "true", "HX-History-Restore-Request": "true"}

    page = client.get(OVERVIEW, {"period": "7d"}, headers=back).content.decode()

    assert "<!doctype html>" in page


def test_the_template_s_progress_asks_only_for_itself(world: World, client: Client) -> None:
    client.force_login(world.people["admin"])
    with CaptureQueriesContext(connection) as asked:
        response = client.get(OVERVIEW, {"part": "template"}, headers={"HX-Request": "true"})

    assert b"live" not in response.content
    assert not any("fleet_session" in query["sql"] for query in asked.captured_queries)


def test_a_role_in_one_space_shows_that_space_only(world: World, client: Client) -> None:
    elsewhere = Space.objects.create(
        tenant=world.tenant, slug="other", name="Otherplace", backend=world.backend
    )
    Session.objects.create(space=elsewhere, session_id="theirs", backend=world.backend)
    Build.objects.create(space=elsewhere, state=BuildState.FAILED, finished_at=timezone.now())
    ReconcileReport.objects.create(
        backend=world.backend,
        dry_run=False,
        actor="system",
        finished_at=timezone.now(),
        orphaned=5,
        oldest_orphan_s=90_000,
    )
    Backend.objects.update(check_error="It is down.", hourly_cost=Decimal(1), currency="EUR")
    take_sample(now=timezone.now() - timedelta(hours=1))

    response = overview(client, world.people["viewer"])

    found, page = response.context["dashboard"], response.content.decode()
    assert [standing.space.pk for standing in found.spaces] == [world.space.pk]
    assert found.sessions.active == 1
    assert found.whole_backends == []
    assert found.idle.orphans is None
    assert [column.cells[0] for column in found.sessions_charts[0].columns] == ["1", "1"]
    assert {need.code for need in found.needs} == {"build-failed", "policy-pending"}
    for secret in ("Otherplace", "theirs", "It is down.", "backends/bkd"):
        assert secret not in page
    assert {need.mend for need in found.needs} == {"Look at it"}, "a viewer mends nothing"


def test_another_tenant_sees_nothing(world: World, other_world: World, client: Client) -> None:
    Space.objects.filter(pk=world.space.pk).update(name="Secretplace")

    page = overview(client, other_world.people["admin"]).content.decode()

    assert "Secretplace" not in page
    assert world.space.pk not in page
    assert world.backend.pk not in page


def test_what_idles_is_counted_and_priced_by_currency(world: World, client: Client) -> None:
    dollars = Backend.objects.create(
        tenant=world.tenant,
        name="Dollars",
        provider="local",
        hourly_cost=Decimal("0.25"),
        currency="USD",
    )
    more_sessions(world, 3, "paused")
    more_sessions(world, 4, "paused", backend=dollars)
    ReconcileReport.objects.create(
        backend=dollars,
        dry_run=False,
        actor="system",
        finished_at=timezone.now(),
        orphaned=3,
        deleted=1,
    )

    response = overview(client, world.people["admin"])

    idle = response.context["dashboard"].idle
    assert (idle.paused, idle.orphans) == (7, 2)
    assert idle.costs == [("USD", Decimal("1.50"), Decimal("36.00"))]
    assert idle.unpriced == [world.backend]
    page = response.content.decode()
    assert "36.00" in page
    assert reverse("web:edit-backend", args=[world.backend.pk]) in page


def test_a_fresh_installation_is_led_step_by_step(world: World, client: Client) -> None:
    Session.objects.all().delete()
    Build.objects.all().delete()
    world.skill.delete()
    person = world.people["admin"]

    response = overview(client, person)

    page = response.content.decode()
    assert [step.is_done for step in response.context["first_steps"]] == [False] * 4
    for address in (
        reverse("web:backend", args=[world.backend.pk]),
        reverse("web:upload"),
        reverse("web:space-skills", args=[world.space.pk]),
    ):
        assert f'href="{address}"' in page
    assert "Nothing was counted yet" in page
    assert "Nothing was built yet" in page
    assert "No session yet" in page
    assert overview(client, world.people["viewer"]).context["first_steps"] == []


def test_first_steps_go_when_they_are_done(world: World, client: Client) -> None:
    assert overview(client, world.people["admin"]).context["first_steps"] != []
    world.verification.state = "passed"
    world.verification.finished_at = timezone.now()
    world.verification.save()
    Release.objects.update(state=ReleaseState.ACTIVE)
    Space.objects.filter(pk=world.space.pk).update(current_release=world.release)

    assert overview(client, world.people["admin"]).context["first_steps"] == []


def test_first_steps_go_for_who_closed_them(world: World, client: Client) -> None:
    admin = world.people["admin"]
    client.force_login(admin)
    assert client.post(reverse("web:hide-first-steps")).status_code == 302

    assert overview(client, admin).context["first_steps"] == []
    User.objects.filter(pk=admin.pk).update(hides_first_steps=False)
    admin.refresh_from_db()
    assert overview(client, admin).context["first_steps"] != []


def test_somebody_without_any_role_has_a_page(world: World, client: Client) -> None:
    nobody = User.objects.create_user("nobody")

    page = overview(client, nobody).content.decode()

    assert "Nothing waits for you." in page


def test_a_space_has_the_same_and_what_serves_in_it(world: World, client: Client) -> None:
    Release.objects.update(state=ReleaseState.ACTIVE, size_bytes=5_000_000)
    Space.objects.filter(pk=world.space.pk).update(current_release=world.release)
    take_sample(now=timezone.now() - timedelta(hours=1))

    page = space_page(client, world)

    for part in ("sessions-by-state", "builds-over-time", "release 1", "4.8", "revision 1"):
        assert part in page
    assert "1 session" in page, "that has no release, and an older policy"
    assert "Start a session" not in page
    assert "Start a session" in space_page(client, world, "operator")


def test_a_space_without_anything_has_a_page(world: World, client: Client) -> None:
    empty = create_space(
        tenant=world.tenant, slug="new", name="New", backend=world.backend, actor=SYSTEM
    )
    client.force_login(world.people["admin"])

    response = client.get(reverse("web:space", args=[empty.pk]))

    assert response.status_code == 200


@pytest.fixture
def crowded(world: World) -> World:
    """10,000 sessions in 20 spaces, counted for a day, with builds and a policy behind."""
    spaces = Space.objects.bulk_create(
        Space(tenant=world.tenant, slug=f"s-{n}", name=f"S {n}", backend=world.backend)
        for n in range(20)
    )
    NetworkPolicyRevision.objects.bulk_create(
        NetworkPolicyRevision(space=space, number=1) for space in spaces
    )
    states = ["active", "paused", "lost", "destroyed"]
    Session.objects.bulk_create(
        (
            Session(
                space=spaces[n % 20],
                backend=world.backend,
                session_id=f"many-{n}",
                state=states[n % 4],
                release=world.release,
            )
            for n in range(MANY)
        ),
        batch_size=1000,
    )
    now = timezone.now()
    Build.objects.bulk_create(
        Build(
            space=spaces[n % 20],
            state=["succeeded", "failed"][n % 7 == 0],
            started_at=now - timedelta(minutes=n + 2),
            finished_at=now - timedelta(minutes=n),
        )
        for n in range(1000)
    )
    moments = [samples.slot(now) - n * samples.EVERY for n in range(288)]
    Sampling.objects.bulk_create(Sampling(at=at) for at in moments)
    SessionSample.objects.bulk_create(
        (
            SessionSample(sampling_id=at, space=space, backend=world.backend, active=n, paused=2)
            for n, at in enumerate(moments)
            for space in spaces
        ),
        batch_size=1000,
    )
    return world


def test_ten_thousand_sessions_cost_few_queries(crowded: World, client: Client) -> None:
    client.force_login(crowded.people["admin"])
    of_space = reverse("web:space", args=[Space.objects.get(slug="s-0").pk])
    for address, running in ((OVERVIEW, MANY // 4 + 1), (of_space, MANY // 20)):
        client.get(address)  # templates are compiled, the sign-in is noted
        with CaptureQueriesContext(connection) as asked:
            response = client.get(address)
        assert response.context["dashboard"].sessions.active == running
        assert len(asked) <= MOST_QUERIES, "\n".join(query["sql"] for query in asked)
