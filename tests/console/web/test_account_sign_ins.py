"""Where a person is signed in: shown in plain words, ended by them, by their admin, and by what must end it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import reverse
from starlette.requests import HTTPConnection

from console.tenants.account_models import SignIn
from console.tenants.models import Membership, User
from console.tenants.sign_ins import note
from console.tenants.tasks import sweep_sign_ins
from console.web import middleware
from console.web.accounts.browsers import in_words
from console.web.preview import tickets
from tests.console.cast import World
from tests.console.web.account_world import (
    PASSWORD,
    Clock,
    audited,
    give_in_password,
    give_password,
    is_signed_in,
    text_of,
)

pytestmark = pytest.mark.usefixtures("clock", "quick_passwords")

FIREFOX = "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:140.0) Gecko/20100101 Firefox/140.0"
PHONE = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
    "Version/18.5 Mobile/15E148 Safari/604.1"
)


@pytest.fixture
def person(world: World) -> User:
    return give_password(world.people["owner"])


def browser(user: User, user_agent: str = FIREFOX, address: str = "192.0.2.1") -> Client:
    """One in which the person signed in."""
    client = Client(HTTP_USER_AGENT=user_agent, REMOTE_ADDR=address)
    give_in_password(client, user)
    return client


def test_each_browser_is_shown_and_this_one_first(person: User, clock: Clock) -> None:
    browser(person, PHONE, "2001:db8::7")
    clock.shift(timedelta(hours=3))
    here = browser(person)

    text = text_of(here.get(reverse("web:sign-ins")))

    assert text.index("Firefox on Windows") < text.index("Safari on iPhone")
    assert text.index("this one") < text.index("Safari on iPhone")
    assert "192.0.2.1" in text
    assert "2001:db8::7" in text
    assert "3 hours ago" in text.replace("\xa0", " ")


def test_the_last_use_is_kept_to_within_minutes(person: User, clock: Clock) -> None:
    here = browser(person)
    row = SignIn.objects.get(user=person)
    start = row.last_used_at

    clock.shift(timedelta(minutes=2))
    here.get(reverse("web:profile"))
    row.refresh_from_db()
    assert row.last_used_at == start
    clock.shift(timedelta(minutes=4))
    here.get("/api/v1/me")
    row.refresh_from_db()

    assert row.last_used_at - start == timedelta(minutes=6)
    assert row.created_at == start


def test_one_can_be_ended(person: User) -> None:
    here, lost = browser(person), browser(person, PHONE)
    row = SignIn.objects.get(session_id=lost.session.session_key)

    here.post(reverse("web:end-sign-in", args=[row.pk]))

    assert is_signed_in(here)
    assert not is_signed_in(lost)
    assert lost.get("/api/v1/me").status_code == 401


def test_nobody_ends_another_persons(person: User, world: World) -> None:
    theirs = browser(person)
    row = SignIn.objects.get(user=person)
    stranger = browser(give_password(world.people["viewer"]))

    assert stranger.post(reverse("web:end-sign-in", args=[row.pk])).status_code == 404
    assert is_signed_in(theirs)


def test_all_others_can_be_ended(person: User, world: World) -> None:
    here, *others = (browser(person) for _number in range(4))
    bystander = browser(give_password(world.people["viewer"]))

    text = text_of(here.get(reverse("web:sign-ins")))
    here.post(reverse("web:end-other-sign-ins"))

    assert "3 other browsers are signed out at once" in text
    assert is_signed_in(here)
    assert is_signed_in(bystander)
    assert not any(is_signed_in(client) for client in others)
    assert [entry.details for entry in audited("account.end_sign_ins")] == [{"ended": 3}]


def test_a_new_password_ends_all_others_and_keeps_this_one(person: User) -> None:
    here, other = browser(person), browser(person)
    key = here.session.session_key
    new = "yet another odd phrase"
    form = {"old_password": PASSWORD, "new_password1": new, "new_password2": new}

    here.post(reverse("web:password"), form)

    assert is_signed_in(here)
    assert here.session.session_key != key
    assert not is_signed_in(other)
    assert SignIn.objects.filter(user=person).count() == 1
    assert Session.objects.count() == 1
    assert len(audited("account.password")) == 1


def test_signing_out_takes_the_row_with_it(person: User) -> None:
    browser(person).post(reverse("web:sign-out"))

    assert not SignIn.objects.exists()


def test_a_removed_member_is_out_at_once(person: User, world: World) -> None:
    theirs = browser(person)
    admin = browser(give_password(world.people["admin"]))
    membership = Membership.objects.get(user=person)

    admin.post(reverse("web:remove-member", args=[membership.pk]))

    assert not is_signed_in(theirs)
    assert is_signed_in(admin)


def test_an_inactive_person_is_out_at_once(person: User) -> None:
    theirs = browser(person)

    User.objects.filter(pk=person.pk).update(is_active=False)

    assert not is_signed_in(theirs)
    assert theirs.get("/api/v1/me").status_code == 401


def test_an_admin_signs_a_member_out_everywhere(person: User, world: World) -> None:
    theirs = [browser(person) for _number in range(2)]
    admin = browser(give_password(world.people["admin"]))
    assert "in 2 browsers" in text_of(admin.get(reverse("web:member-security")))

    admin.post(reverse("web:sign-out-member", args=[person.pk]))

    assert not any(is_signed_in(client) for client in theirs)
    entry = audited("account.end_sign_ins")[0]
    assert (entry.actor, entry.target) == ("admin-acme", person.get_username())
    assert entry.tenant == world.tenant


def test_an_admin_of_another_tenant_sees_and_ends_nothing(
    person: User, world: World, other_world: World
) -> None:
    theirs = browser(person)
    stranger = browser(give_password(other_world.people["admin"]))

    assert person.get_username() not in text_of(stranger.get(reverse("web:member-security")))
    assert stranger.post(reverse("web:sign-out-member", args=[person.pk])).status_code == 404
    assert is_signed_in(theirs)


def test_a_preview_ends_with_the_sign_in_that_opened_it(person: User, world: World) -> None:
    here = browser(person)
    cookie = f"session={here.session.session_key}".encode()
    connection = HTTPConnection({"type": "http", "headers": [(b"cookie", cookie)]})
    ticket = tickets.issue(connection=connection, user=person, session=world.session, port=8000)
    assert tickets.holder(ticket, pk=world.session.pk, port=8000) == person

    here.post(reverse("web:sign-out"))

    assert tickets.holder(ticket, pk=world.session.pk, port=8000) is None
    late = tickets.issue(connection=connection, user=person, session=world.session, port=8000)
    assert tickets.holder(late, pk=world.session.pk, port=8000) is None


@pytest.mark.parametrize(
    ("every", "ends_after"), [(timedelta(days=15), 15), (timedelta(days=10), 30)]
)
def test_a_sign_in_ends_by_disuse_and_by_age(
    person: User, clock: Clock, every: timedelta, ends_after: int
) -> None:
    here, used = browser(person), timedelta()
    while is_signed_in(here):
        clock.shift(every)
        used += every

    assert used == timedelta(days=ends_after)
    clock.shift(timedelta(seconds=1))
    sweep_sign_ins()
    assert not SignIn.objects.exists()


@pytest.mark.parametrize(
    ("user_agent", "words"),
    [
        (FIREFOX, "Firefox on Windows"),
        (PHONE, "Safari on iPhone"),
        (
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/140.0 Safari/537.36",
            "Chrome on Linux",
        ),
        (
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Chrome/140.0 Safari/537.36 Edg/140.0",
            "Edge on macOS",
        ),
        (
            "Mozilla/5.0 (Linux; Android 15) Chrome/130 Mobile Safari/537.36 MicroMessenger/8.0",
            "WeChat on Android",
        ),
        (
            "Mozilla/5.0 (Phone; OpenHarmony 5.0) ArkWeb/4 Mobile HuaweiBrowser/5.1",
            "Huawei Browser on HarmonyOS",
        ),
        ("curl/8.5.0", "curl"),
        ("", "An unknown browser"),
        ("<script>", "An unknown browser"),
    ],
)
def test_browsers_have_names(user_agent: str, words: str) -> None:
    assert in_words(user_agent) == words


@pytest.mark.django_db(transaction=True)
def test_a_session_that_was_ended_meanwhile_is_not_revived(
    person: User, clock: Clock, monkeypatch: Any
) -> None:
    """Ended between the start of a request and its end."""
    here = browser(person)
    clock.shift(timedelta(hours=1))
    key = here.session.session_key

    def ended_just_now(request: Any, user: User) -> None:
        Session.objects.filter(pk=key).delete()
        note(request, user)

    monkeypatch.setattr(middleware, "seen", ended_just_now)
    answer = here.get(reverse("web:profile"))

    assert answer.status_code == 400
    assert not Session.objects.filter(pk=key).exists()
    assert not SignIn.objects.exists()
