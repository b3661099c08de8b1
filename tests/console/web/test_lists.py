"""Lists do what their URL says: filter, order, page. What the URL says wrongly is named and left out."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from console.audit.models import AuditEntry
from console.audit.services import SYSTEM, record
from console.fleet.models import Session
from console.policies.models import NetworkPolicyRevision
from console.tenants.models import ApiKey
from console.web.audit.lists import AUDIT
from console.web.backends.lists import BACKENDS
from console.web.builds.lists import BUILDS
from console.web.catalog.lists import CATALOG
from console.web.keys.lists import KEYS
from console.web.lists import ListPage
from console.web.members.lists import MEMBERS
from console.web.reconcile.lists import RECONCILE
from console.web.releases.lists import RELEASES
from console.web.sessions.lists import SESSIONS
from console.web.spaces.lists import SPACES
from skills.models import Build, BuildSkill, Release, ReleaseSkill, SkillVersion
from tests.console.cast import World
from tests.console.web.listing import LISTS, address, make_sessions, session_ids, text_of


@pytest.fixture
def admin(world: World, client: Client) -> Client:
    client.force_login(world.people["admin"])
    return client


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize(
    "query",
    [
        "?sort=nonsense",
        "?sort=-",
        "?size=7",
        "?page=99",
        "?page=x",
        "?format=exe",
        "?since=yesterday&used_since=9999-12-31&used_before=soon",
        "?state=%00&space=spc_nobodys&backend=1&role=king&release=9999999999999999999",
        "?q=" + "x" * 300,
        "?q=%00",
        "?drift=sideways&outcome=&trigger=%F0%9F%92%A9",
    ],
)
def test_nonsense_in_the_url_is_no_error(
    name: str, query: str, world: World, admin: Client
) -> None:
    response = admin.get(address(name, world, query))

    assert response.status_code == 200


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("?sort=nonsense", "has no order by “nonsense”"),
        ("?size=7", "“7” is no page size"),
        ("?page=99", "There is no page “99”; this is page 1."),
        ("?format=exe", "no export as “exe”"),
        ("?state=gone", "“gone” is no value of the filter “State”"),
        ("?used_before=soon", "“soon” is no value of the filter “Last used until”"),
        ("?space=spc_nobodys", "“spc_nobodys” is no value of the filter “Space”"),
    ],
)
def test_nonsense_is_named_and_left_out(
    query: str, sentence: str, world: World, admin: Client
) -> None:
    text = admin.get(address("sessions", world, query)).content.decode()

    assert sentence in text
    assert "talk-1" in text


def test_another_tenants_space_is_no_filter(
    world: World, other_world: World, admin: Client
) -> None:
    text = admin.get(address("sessions", world, f"?space={other_world.space.pk}")).content.decode()

    assert "is no value of the filter" in text
    assert session_ids(text) == ["talk-1"]


def test_sessions_are_filtered_by_what_people_look_for(world: World, admin: Client) -> None:
    long_ago = timezone.now() - timedelta(days=40)
    make_sessions(world, "old-paused", state="paused")
    Session.objects.filter(session_id="old-paused").update(used_at=long_ago)
    make_sessions(world, "on-release", release=world.release)
    day = (timezone.now() - timedelta(days=30)).date()

    def shown(query: str) -> set[str]:
        return set(session_ids(admin.get(address("sessions", world, query)).content.decode()))

    assert shown("?state=paused") == {"old-paused"}
    assert shown("?q=RELEASE") == {"on-release"}
    assert shown(f"?used_before={day}") == {"old-paused"}
    assert shown(f"?used_since={day}") == {"talk-1", "on-release"}
    assert shown("?release=1") == {"on-release"}
    assert shown(f"?backend={world.backend.pk}&state=active") == {"talk-1", "on-release"}
    assert shown(f"?used_before={long_ago.date()}") == {"old-paused"}, "the day itself is in"


def test_days_are_those_of_the_reader(world: World, admin: Client) -> None:
    late = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)
    Session.objects.update(used_at=late)
    url = address("sessions", world, "?used_since=2026-03-02")
    assert session_ids(admin.get(url).content.decode()) == []

    world.people["admin"].time_zone = "Asia/Shanghai"
    world.people["admin"].save()

    assert session_ids(admin.get(url).content.decode()) == ["talk-1"]


def test_sessions_are_filtered_by_what_a_new_one_would_be(world: World, admin: Client) -> None:
    first = NetworkPolicyRevision.objects.get(space=world.space)
    second = NetworkPolicyRevision.objects.create(space=world.space, number=2)
    Session.objects.all().delete()
    make_sessions(world, "as-now", policy=second)
    make_sessions(world, "older-policy", policy=first)
    make_sessions(world, "older-release", policy=second, release=world.release)
    make_sessions(world, "gone", state="destroyed")
    make_sessions(world, "a-clients", policy=first, created_by="gateway, key sky_1")

    def shown(value: str) -> set[str]:
        return set(
            session_ids(admin.get(address("sessions", world, f"?drift={value}")).content.decode())
        )

    assert shown("none") == {"as-now", "a-clients"}, "clients choose for themselves"
    assert shown("policy") == {"older-policy"}
    assert shown("release") == {"older-release"}
    assert shown("any") == {"older-policy", "older-release"}

    world.space.candidate_release = world.release
    world.space.save()

    assert shown("release") == set(), "a candidate's share is up to date"

    world.space.current_release = world.release
    world.space.candidate_release = None
    world.space.save()

    assert shown("release") == {"as-now", "older-policy"}

    Release.objects.update(state="broken")

    assert shown("release") == {"older-release"}, "new ones start from the base template now"


def test_a_heading_sorts_and_a_second_click_turns_it_round(world: World, admin: Client) -> None:
    make_sessions(world, "b", "a", "c")

    text = admin.get(address("sessions", world, "?sort=session_id&state=active")).content.decode()
    assert session_ids(text) == ["a", "b", "c", "talk-1"]
    assert 'aria-sort="ascending"' in text
    turned = re.search(r'id="by-session_id" href="([^"]+)"', text)
    assert turned is not None
    url = turned.group(1).replace("&amp;", "&")
    assert "state=active" in url, "the filters stay"

    text = admin.get(url).content.decode()
    assert session_ids(text) == ["talk-1", "c", "b", "a"]
    assert 'aria-sort="descending"' in text


def test_equal_rows_keep_one_order_over_the_pages(world: World, admin: Client) -> None:
    make_sessions(world, *(f"same-{n}" for n in range(60)))
    seen: list[str] = []
    for page in (1, 2, 3):
        url = address("sessions", world, f"?sort=state&size=25&page={page}")
        seen += session_ids(admin.get(url).content.decode())

    assert len(seen) == len(set(seen)) == 61


def test_nothing_yet_and_nothing_that_matches_are_told_apart(world: World, admin: Client) -> None:
    text = admin.get(address("sessions", world, "?q=nowhere")).content.decode()
    assert "Nothing matches" in text
    assert "Show all" in text

    Session.objects.all().delete()
    text = admin.get(address("sessions", world)).content.decode()
    assert "No session yet" in text
    assert reverse("web:spaces") in text, "the next step"


def test_a_filter_that_holds_is_shown_and_can_be_left_out(world: World, admin: Client) -> None:
    url = address("sessions", world, f"?state=active&space={world.space.pk}&sort=session_id")
    text = admin.get(url).content.decode()

    chips = re.findall(r'<a href="([^"]+)"[^>]*title="Leave this filter out"', text)
    assert [link.replace("&amp;", "&") for link in chips] == [
        f"/sessions/?space={world.space.pk}&sort=session_id",
        "/sessions/?state=active&sort=session_id",
    ]
    assert "State: <strong>Running</strong>" in text
    assert "Space: <strong>Lab</strong>" in text
    assert "1 result" in text


def test_a_spaces_list_shows_the_space_alone(
    world: World, other_world: World, admin: Client
) -> None:
    text = admin.get(address("space-sessions", world)).content.decode()

    assert 'id="by-space"' not in text
    assert 'name="space"' not in text
    assert session_ids(text) == ["talk-1"]


def test_the_audit_is_filtered_by_who_what_outcome_and_day(world: World, admin: Client) -> None:
    AuditEntry.objects.all()._raw_delete("default")  # type: ignore[attr-defined]
    for action, outcome in (("key.revoke", "done"), ("key.issue", "denied")):
        record(
            actor=SYSTEM, action=action, outcome=outcome, tenant_id=world.tenant.pk, target="robot"
        )

    def shown(query: str) -> set[str]:
        rows = json.loads(text_of(admin.get(address("audit", world, f"{query}&format=json"))))
        return {row["action"] for row in rows}

    today = timezone.now().date()
    assert shown("?outcome=denied") == {"key.issue"}
    assert shown("?action=revoke") == {"key.revoke"}
    assert shown("?actor=system&target=robot") == {"key.revoke", "key.issue"}
    assert shown(f"?until={today - timedelta(days=1)}") == set()
    assert shown(f"?since={today}") == {"key.revoke", "key.issue"}


def test_the_catalog_shows_the_newest_versions_that_are_not_archived(
    world: World, admin: Client
) -> None:
    SkillVersion.objects.create(
        skill=world.skill,
        number=2,
        digest="2" * 64,
        description="Newer.",
        size_bytes=1,
        file_count=1,
    )

    def shown(query: str = "") -> list[int]:
        url = address("catalog", world, f"?format=json{query}")
        return [row["version"] for row in json.loads(text_of(admin.get(url)))]

    assert shown() == [2]
    assert shown("&versions=all&sort=version") == [1, 2]
    assert shown("&state=archived") == []

    world.skill.archived_at = timezone.now()
    world.skill.save()

    assert shown() == []
    assert shown("&state=archived") == [2]


def test_keys_are_filtered_by_what_they_open(world: World, admin: Client) -> None:
    now = timezone.now()
    for name, values in {
        "expired": {"expires_at": now - timedelta(days=1)},
        "revoked": {"revoked_at": now},
        "used": {"last_used_at": now},
    }.items():
        ApiKey.objects.create(tenant=world.tenant, name=name, prefix=f"sky_{name}", **values)

    def shown(state: str) -> set[str]:
        url = address("keys", world, f"?state={state}&format=json")
        return {row["name"] for row in json.loads(text_of(admin.get(url)))}

    assert shown("valid") == {"robot", "used"}
    assert shown("unused") == {"robot"}
    assert shown("expired") == {"expired"}
    assert shown("revoked") == {"revoked"}


def test_releases_of_all_spaces_are_filtered_by_state(
    world: World, other_world: World, admin: Client
) -> None:
    world.space.current_release = Release.objects.create(
        space=world.space,
        generation=2,
        backend=world.backend,
        fingerprint="f",
        state="active",
        planned_name="two",
        snapshot_id="snap-2",
    )
    world.space.save()

    def shown(query: str) -> list[int]:
        url = address("releases", world, f"?format=json{query}")
        return [row["release"] for row in json.loads(text_of(admin.get(url)))]

    assert shown("") == [2, 1], "none of another tenant"
    assert shown("&state=serves") == [2]
    assert shown("&state=superseded") == [1]


PAGES = [AUDIT, BACKENDS, BUILDS, CATALOG, KEYS, MEMBERS, RECONCILE, RELEASES, SESSIONS, SPACES]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_order_and_every_choice_that_is_offered_works(
    page: ListPage, world: World, admin: Client
) -> None:
    record(actor=SYSTEM, action="x.y", tenant_id=world.tenant.pk)
    text = admin.get(address(page.name, world)).content.decode()
    orders = re.findall(r'id="by-\w+" href="([^"]+)"', text)
    choices = [
        f"?{name}={value}"
        for name, options in re.findall(r'<select name="(\w+)"[^>]*>(.*?)</select>', text, re.S)
        for value in re.findall(r'value="([^"]+)"', options)
        if name in page.filters.base_filters
    ]
    assert orders

    for query in [*orders, *choices]:
        url = query if query.startswith("/") else address(page.name, world, query)
        response = admin.get(url.replace("&amp;", "&"))
        assert response.status_code == 200, url
        assert "notice warn" not in response.content.decode(), url


@pytest.mark.parametrize("name", ["builds", "releases"])
def test_builds_and_releases_are_found_by_a_skill_in_them(
    name: str, world: World, admin: Client
) -> None:
    plan = world.version.current_plan
    BuildSkill.objects.create(build=world.build, position=0, version=world.version, plan=plan)
    ReleaseSkill.objects.create(release=world.release, position=0, version=world.version, plan=plan)
    Build.objects.create(space=world.space, state="failed")
    Release.objects.create(
        space=world.space,
        generation=2,
        backend=world.backend,
        fingerprint="f",
        planned_name="two",
    )

    (row,) = json.loads(text_of(admin.get(address(name, world, "?skill=DEM&format=json"))))

    assert row["skills"] == ["demo #1"]
    assert text_of(admin.get(address(name, world, "?skill=other&format=json"))) == "[]\n"
