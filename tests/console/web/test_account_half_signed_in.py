"""Between the password and the code a visitor is nobody: on every page, over REST, and for a planted session."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import reverse

from console.tenants.models import User
from tests.console.cast import World
from tests.console.web.account_world import (
    Clock,
    code_of,
    enrol,
    give_in_code,
    give_in_password,
    give_password,
    is_signed_in,
)
from tests.console.web.test_every_page_asks_who_you_are import RULES, address

pytestmark = pytest.mark.usefixtures("clock", "quick_passwords")


@pytest.fixture
def admin(world: World) -> User:
    user = give_password(world.people["admin"])
    enrol(user)
    return user


@pytest.fixture
def half(client: Client, admin: User) -> Client:
    """Their password was right."""
    assert give_in_password(client, admin).status_code == 302
    return client


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_page_is_closed(name: str, half: Client, world: World) -> None:
    response = getattr(half, RULES[name].method)(address(name, world))

    assert response.status_code == 302
    assert response.headers["Location"].startswith(reverse("web:sign-in"))


@pytest.mark.parametrize(
    "path", ["/api/v1/me", "/api/v1/spaces", "/api/v1/tenants", "/api/v1/audit"]
)
def test_rest_is_closed(path: str, half: Client, admin: User) -> None:
    assert half.get(path).status_code == 401

    give_in_code(half, code_of(admin))

    assert half.get(path).status_code == 200


def test_the_session_gets_a_new_key_at_each_step(client: Client, admin: User) -> None:
    """A key that somebody planted before the sign-in is worth nothing after it."""
    client.cookies["session"] = "planted0planted0planted0planted0"
    client.get(reverse("web:sign-in"))
    keys = ["planted0planted0planted0planted0"]
    give_in_password(client, admin)
    keys.append(client.cookies["session"].value)
    give_in_code(client, code_of(admin))
    keys.append(client.cookies["session"].value)

    assert len(set(keys)) == 3
    assert not Session.objects.filter(pk__in=keys[:2]).exists()
    thief = Client()
    for key in keys[:2]:
        thief.cookies["session"] = key
        assert not is_signed_in(thief)
        assert give_in_code(thief, code_of(admin, steps=1)).headers["Location"] == reverse(
            "web:sign-in"
        )


def test_the_password_alone_of_somebody_without_a_second_step_rotates_the_key_too(
    client: Client, world: World
) -> None:
    person = give_password(world.people["viewer"])
    client.get(reverse("web:sign-in"))
    client.session.save()

    before = client.session.session_key
    give_in_password(client, person)

    assert client.session.session_key != before


def test_the_code_is_asked_of_nobody_who_gave_no_password(client: Client, admin: User) -> None:
    answer = give_in_code(client, code_of(admin))

    assert answer.headers["Location"] == reverse("web:sign-in")
    assert not is_signed_in(client)


def test_a_code_after_ten_minutes_is_too_late(half: Client, admin: User, clock: Clock) -> None:
    clock.shift(timedelta(minutes=10, seconds=1))

    give_in_code(half, code_of(admin))

    assert not is_signed_in(half)


def test_a_new_password_or_a_closed_account_ends_what_was_begun(admin: User) -> None:
    for change in ("password", "account"):
        client = Client()
        give_in_password(client, admin)
        if change == "password":
            admin.set_password("another odd phrase")
            admin.save()
        else:
            User.objects.filter(pk=admin.pk).update(is_active=False)

        give_in_code(client, code_of(admin))

        assert not is_signed_in(client)
        give_password(admin)
