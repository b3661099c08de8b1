"""A person's own settings: their zone in every time, their language, and a way to the rest."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from console.audit.services import SYSTEM, record
from console.tenants.models import User
from tests.console.cast import World
from tests.console.web.account_world import Clock, text_of

pytestmark = pytest.mark.usefixtures("clock")

PROFILE = {"first_name": "", "last_name": "", "email": "", "language": "", "theme": "auto"}


@pytest.fixture
def admin(world: World, client: Client) -> User:
    client.force_login(world.people["admin"])
    return world.people["admin"]


def audit_page(client: Client, world: World) -> str:
    record(actor=SYSTEM, action="x.y", target="it", tenant_id=world.tenant.pk)
    return text_of(client.get(reverse("web:audit")))


def test_times_are_in_the_zone_that_was_chosen(
    client: Client, admin: User, world: World, clock: Clock
) -> None:
    saved = client.post(reverse("web:profile"), {**PROFILE, "time_zone": "Asia/Shanghai"})
    assert saved.status_code == 302
    clock.move_to("2030-01-01T20:30:00Z")
    client.cookies["time_zone"] = "America/New_York"

    text = audit_page(client, world)

    assert "Jan. 2, 2030, 4:30 a.m. (Asia/Shanghai)" in text
    assert 'data-time-zone="Asia/Shanghai"' in text
    assert "4:30 a.m. there (Asia/Shanghai)" in text_of(client.get(reverse("web:profile")))


def test_else_in_the_browsers(client: Client, admin: User, world: World, clock: Clock) -> None:
    clock.move_to("2030-01-01T20:30:00Z")
    client.cookies["time_zone"] = "America/New_York"

    assert "3:30 p.m. (America/New_York)" in audit_page(client, world)


@pytest.mark.parametrize("cookie", ["", "Mars/Olympus", "../../etc/passwd", "America"])
def test_else_in_utc(client: Client, admin: User, world: World, cookie: str) -> None:
    client.cookies["time_zone"] = cookie

    assert "midnight (UTC)" in audit_page(client, world)


def test_one_readers_zone_is_not_the_next_ones(
    client: Client, admin: User, world: World, clock: Clock
) -> None:
    client.post(reverse("web:profile"), {**PROFILE, "time_zone": "Asia/Shanghai"})
    audit_page(client, world)
    other = Client()
    other.force_login(world.people["auditor"])

    assert "(UTC)" in text_of(other.get(reverse("web:profile")))


def test_a_zone_that_is_none_is_refused(client: Client, admin: User) -> None:
    answer = client.post(reverse("web:profile"), {**PROFILE, "time_zone": "Mars/Olympus"})

    assert answer.status_code == 422
    admin.refresh_from_db()
    assert admin.time_zone == ""


def test_language_and_colours_are_kept_and_given_back(client: Client, admin: User) -> None:
    client.post(reverse("web:profile"), {**PROFILE, "language": "zh-hans", "theme": "dark"})

    page = text_of(client.get(reverse("web:profile")))
    assert 'lang="zh-Hans"' in page
    assert 'data-theme="dark"' in page

    client.post(reverse("web:profile"), PROFILE)

    assert 'lang="en"' in text_of(client.get(reverse("web:profile")))


@pytest.mark.parametrize("name", ["profile", "password", "two-step", "sign-ins"])
def test_each_section_leads_to_the_others(client: Client, admin: User, name: str) -> None:
    text = text_of(client.get(reverse(f"web:{name}")))

    for other in ("profile", "password", "two-step", "sign-ins"):
        current = ' aria-current="page"' if other == name else ""
        assert f'<a href="{reverse(f"web:{other}")}"{current}>' in text
