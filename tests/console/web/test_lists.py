"""Lists do what their URL says: filter, order, page, export. What the URL says wrongly is named and left out."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from console.audit.models import AuditEntry
from console.audit.services import SYSTEM, record
from console.fleet.models import Session
from console.policies.models import NetworkPolicyRevision
from console.tenants.models import ApiKey
from skills.models import Build, Release, SkillVersion
from tests.console.cast import World

LISTS = [
    "spaces",
    "catalog",
    "sessions",
    "builds",
    "releases",
    "backends",
    "reconcile",
    "members",
    "member-security",
    "keys",
    "audit",
    "space-sessions",
    "space-builds",
    "space-releases",
]


@pytest.fixture
def admin(world: World, client: Client) -> Client:
    client.force_login(world.people["admin"])
    return client


def address(name: str, world: World, query: str = "") -> str:
    args = [world.space.pk] if name.startswith("space-") else []
    return reverse(f"web:{name}", args=args) + query


def text_of(response: Any) -> str:
    async def joined() -> bytes:
        return b"".join([chunk async for chunk in response.streaming_content])

    return async_to_sync(joined)().decode() if response.streaming else response.content.decode()


def session_ids(text: str) -> list[str]:
    return re.findall(r'<th scope="row" class="nowrap"><a href="/sessions/[^"]+">([^<]+)</a>', text)


def make_sessions(world: World, *names: str, **values: Any) -> list[Session]:
    values = {"backend": world.backend, **values}
    return [Session.objects.create(space=world.space, session_id=name, **values) for name in names]


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

    def shown(value: str) -> set[str]:
        return set(
            session_ids(admin.get(address("sessions", world, f"?drift={value}")).content.decode())
        )

    assert shown("none") == {"as-now"}
    assert shown("policy") == {"older-policy"}
    assert shown("release") == {"older-release"}
    assert shown("any") == {"older-policy", "older-release"}

    world.space.candidate_release = world.release
    world.space.save()

    assert shown("none") == {"as-now", "older-release"}, "a candidate's share is up to date"


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


@pytest.mark.parametrize("name", LISTS)
def test_every_list_is_exported_with_one_row_for_each_result(
    name: str, world: World, admin: Client
) -> None:
    record(actor=SYSTEM, action="x.y", tenant_id=world.tenant.pk)
    count = re.search(r'id="count">([\d,]+)', admin.get(address(name, world)).content.decode())
    assert count is not None

    as_csv = text_of(admin.get(address(name, world, "?format=csv")))
    as_json = json.loads(text_of(admin.get(address(name, world, "?format=json"))))

    table = list(csv.DictReader(io.StringIO(as_csv.removeprefix("\ufeff"))))
    assert len(table) == len(as_json) == int(count.group(1)) > 0
    assert list(table[0]) == list(as_json[0])


def test_an_export_holds_the_filtered_set_in_its_order_and_all_pages(
    world: World, admin: Client
) -> None:
    make_sessions(world, *(f"many-{n:03}" for n in range(620)))

    url = address("sessions", world, "?q=many&sort=-session_id&page=2&size=25&format=json")
    rows = json.loads(text_of(admin.get(url)))

    assert [row["session_id"] for row in rows] == [f"many-{n:03}" for n in reversed(range(620))]


def test_an_export_says_times_in_utc_and_numbers_as_numbers(world: World, admin: Client) -> None:
    moment = datetime(2026, 11, 30, 8, 15, 1, 234567, tzinfo=UTC)
    Session.objects.filter(pk=world.session.pk).update(release=world.release, used_at=moment)

    (row,) = json.loads(text_of(admin.get(address("sessions", world, "?format=json"))))

    assert row["used_at"] == "2026-11-30T08:15:01.234Z"
    assert row["release"] == 1
    assert row["space"] == "lab"
    assert row["destroyed_at"] is None


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_a_spreadsheet_is_given_no_formula(name: str, world: World, admin: Client) -> None:
    Session.objects.filter(pk=world.session.pk).update(session_id=name)

    response = admin.get(address("sessions", world, "?format=csv"))
    text = text_of(response)

    assert response.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert text.startswith("\ufeff"), "Excel reads UTF-8 only with the mark"
    (row,) = csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline=""))
    assert row["session_id"] == f"'{name}"
    (plain,) = json.loads(text_of(admin.get(address("sessions", world, "?format=json"))))
    assert plain["session_id"] == name


def test_an_export_asks_for_rows_in_parts(
    world: World, admin: Client, django_assert_max_num_queries: Any
) -> None:
    Build.objects.bulk_create(Build(space=world.space, state="failed") for _ in range(1200))
    response = admin.get(address("builds", world, "?format=csv"))

    with django_assert_max_num_queries(5):  # the rows, and the skills of each 500 of them
        text = text_of(response)

    assert text.count("\n") == 1202


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
