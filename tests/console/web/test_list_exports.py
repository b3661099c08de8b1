"""A list as CSV or JSON: the filtered rows, all pages, safe in a spreadsheet, in bounded memory."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from console.audit.services import SYSTEM, record
from console.fleet.models import Session
from skills.models import Build
from tests.console.cast import World
from tests.console.web.listing import LISTS, address, make_sessions, text_of


@pytest.fixture
def admin(world: World, client: Client) -> Client:
    client.force_login(world.people["admin"])
    return client


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
