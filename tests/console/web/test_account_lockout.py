"""Guessing is slowed by account and address, in words; nobody can lock an owner out from afar."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from axes.models import AccessAttempt
from django.test import AsyncClient, Client
from django.urls import reverse

from console.audit.models import AuditEntry
from console.tenants.models import User
from tests.console.cast import World
from tests.console.web.account_world import (
    PASSWORD,
    Clock,
    audited,
    code_of,
    enrol,
    give_in_code,
    give_in_password,
    give_password,
    is_signed_in,
    text_of,
    wrong_code,
)

pytestmark = pytest.mark.usefixtures("clock", "quick_passwords", "limited")

LIMIT = 8


@pytest.fixture
def limited(settings: Any) -> None:
    settings.AXES_ENABLED = True


@pytest.fixture
def person(world: World) -> User:
    return give_password(world.people["owner"])


def guess(times: int, user: User, address: str = "203.0.113.5") -> Any:
    """The answer to the last wrong password."""
    client = Client(REMOTE_ADDR=address)
    for _try in range(times):
        response = give_in_password(client, user, "wrong")
    return response


def test_it_says_how_long_to_wait(person: User) -> None:
    assert guess(LIMIT - 1, person).status_code == 422

    locked = guess(1, person)

    assert locked.status_code == 429
    assert locked.headers["Retry-After"] == "900"
    assert "Try again in 15 minutes." in text_of(locked)


def test_it_says_so_in_chinese(person: User) -> None:
    guess(LIMIT, person)
    client = Client(REMOTE_ADDR="203.0.113.5", HTTP_ACCEPT_LANGUAGE="zh-CN")

    text = text_of(give_in_password(client, person))

    assert "15 分钟" in text
    assert "Try again" not in text


def test_it_says_so_under_asgi(person: User) -> None:
    """Where django-axes calls with other arguments."""
    guess(LIMIT, person, "127.0.0.1")
    form = {"username": person.get_username(), "password": PASSWORD}

    locked = async_to_sync(AsyncClient().post)(reverse("web:sign-in"), form)

    assert locked.status_code == 429
    assert locked.headers["Retry-After"] == "900"
    assert person.get_username() in text_of(locked)


def test_meanwhile_the_right_password_is_not_looked_at_and_then_it_is(
    person: User, clock: Clock
) -> None:
    guess(LIMIT, person)
    client = Client(REMOTE_ADDR="203.0.113.5")
    clock.shift(timedelta(minutes=10))

    early = give_in_password(client, person)

    assert early.status_code == 429
    assert early.headers["Retry-After"] == "300", "a try meanwhile does not prolong it"
    clock.shift(timedelta(minutes=5, seconds=1))
    give_in_password(client, person)
    assert is_signed_in(client)


def test_a_stranger_locks_nobody_out_elsewhere(person: User) -> None:
    guess(LIMIT * 3, person)
    owner = Client(REMOTE_ADDR="198.51.100.9")

    give_in_password(owner, person)

    assert is_signed_in(owner)


def test_a_success_forgets_the_wrong_tries(person: User) -> None:
    for _round in range(3):
        guess(LIMIT - 1, person)
        assert give_in_password(Client(REMOTE_ADDR="203.0.113.5"), person).status_code == 302


def test_the_right_password_alone_forgets_nothing(person: User) -> None:
    """Or whoever has the password could try codes for ever."""
    enrol(person)
    guess(LIMIT - 1, person)
    client = Client(REMOTE_ADDR="203.0.113.5")
    give_in_password(client, person)

    assert give_in_code(client, wrong_code(person)).status_code == 429
    assert give_in_code(client, code_of(person)).headers["Location"] == reverse("web:sign-in")


def test_an_ipv6_network_is_one_address(person: User) -> None:
    for host in range(LIMIT):
        guess(1, person, f"2001:db8:1:2::{host:x}")

    assert guess(1, person, "2001:db8:1:2:ffff::1").status_code == 429
    assert guess(1, person, "2001:db8:1:3::1").status_code == 422


def test_an_address_that_tries_many_names_waits_for_all_of_them(
    person: User, settings: Any
) -> None:
    settings.SIGN_IN_ADDRESS_FAILURES = 10
    for number in range(10):
        guess(1, User(username=f"name{number}"))

    locked = guess(1, person)

    assert locked.status_code == 429
    assert "Too many names and passwords" in text_of(locked)
    assert guess(1, person, "198.51.100.9").status_code == 422


def test_a_name_that_nobody_has_is_locked_alike_and_written_nowhere(db: None) -> None:
    answers = [guess(LIMIT, User(username=name)) for name in ("my secret password", "other")]

    assert [answer.status_code for answer in answers] == [429, 429]
    assert "my secret password" not in json.dumps([e.content() for e in AuditEntry.objects.all()])


def test_asking_once_more_who_one_is_counts_too(person: User) -> None:
    client = Client(REMOTE_ADDR="203.0.113.5")
    give_in_password(client, person)
    form = {
        "old_password": "wrong",
        "new_password1": "odd new phrase",
        "new_password2": "odd new phrase",
    }

    for _try in range(LIMIT):
        answer = client.post(reverse("web:password"), form)

    assert answer.status_code == 429
    assert (
        client.post(reverse("web:password"), {**form, "old_password": PASSWORD}).status_code == 429
    )


def test_it_is_audited_once_a_lock(person: User, world: World) -> None:
    guess(LIMIT + 4, person)

    failures = audited("account.sign_in")
    assert [(entry.outcome, entry.target) for entry in failures] == [
        ("failed", person.get_username())
    ] * LIMIT
    (lock,) = audited("account.lock")
    assert (lock.address, lock.tenant, lock.outcome) == ("203.0.113.5", world.tenant, "denied")


def test_an_admin_sees_and_lifts_it(person: User, world: World, client: Client) -> None:
    guess(LIMIT, person)
    client.force_login(world.people["admin"])

    before = text_of(client.get(reverse("web:member-security")))
    client.post(reverse("web:unlock-member", args=[person.pk]))

    assert "from 203.0.113.5" in before
    assert "203.0.113.5" not in text_of(client.get(reverse("web:member-security")))
    assert guess(1, person).status_code == 422
    (entry,) = audited("account.unlock")
    assert entry.details == {"addresses": ["203.0.113.5"]}


def test_an_admin_of_another_tenant_does_not(
    person: User, other_world: World, client: Client
) -> None:
    guess(LIMIT, person)
    client.force_login(other_world.people["admin"])

    assert client.post(reverse("web:unlock-member", args=[person.pk])).status_code == 404
    assert guess(1, person).status_code == 429


def test_no_code_or_password_is_kept_by_the_counter(person: User) -> None:
    enrol(person)
    client = Client(REMOTE_ADDR="203.0.113.5")
    give_in_password(client, person, "almost right")
    give_in_password(client, person)
    give_in_code(client, "aaaa-bbbb-cccc-dddd", recovery=True)

    kept = json.dumps(list(AccessAttempt.objects.values()), default=str)
    assert "almost right" not in kept
    assert "aaaa" not in kept
