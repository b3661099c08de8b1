"""Two-step sign-in: set up by a code, asked for after the password, taken once, off again by proof."""

from __future__ import annotations

import json
import re
from base64 import b32decode
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse

from console.audit.models import AuditEntry
from console.fleet.keys import rotate_rows
from console.tenants.account_models import RecoveryCode, TotpDevice
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

pytestmark = pytest.mark.usefixtures("clock", "quick_passwords")

RECOVERY_CODE = re.compile(r"<code>((?:[a-z2-7]{4}-){3}[a-z2-7]{4})</code>")


@pytest.fixture
def person(world: World) -> User:
    return give_password(world.people["owner"])


@pytest.fixture
def settled(person: User) -> User:
    """With two-step sign-in."""
    enrol(person)
    return person


def confirm(client: Client, code: str, password: str = PASSWORD) -> Any:
    form = {"code": code, "password": password}
    return client.post(reverse("web:confirm-two-step"), form)


def test_it_is_set_up_by_a_code_and_shows_recovery_codes_once(client: Client, person: User) -> None:
    client.force_login(person)
    client.post(reverse("web:start-two-step"))
    page = client.get(reverse("web:two-step"))

    text = text_of(page)
    written = re.search(r'<code class="secret">([A-Z2-7 ]+)</code>', text)
    assert written is not None
    device = TotpDevice.objects.get(user=person)
    assert b32decode(written.group(1).replace(" ", "")) == device.key
    assert "<svg" in text
    assert "no-store" in page.headers["Cache-Control"]
    assert not person.has_two_step(), "it does not count before a code was typed"

    done = confirm(client, code_of(person))

    codes = RECOVERY_CODE.findall(text_of(done))
    assert len(set(codes)) == 10
    assert "no-store" in done.headers["Cache-Control"]
    assert person.has_two_step()
    after = text_of(client.get(reverse("web:two-step")))
    assert not RECOVERY_CODE.findall(after)
    assert written.group(1) not in after


@pytest.mark.parametrize("wrong", ["code", "password"])
def test_it_is_not_set_up_by_a_wrong_code_or_password(
    client: Client, person: User, wrong: str
) -> None:
    client.force_login(person)
    client.post(reverse("web:start-two-step"))

    if wrong == "code":
        answer = confirm(client, wrong_code(person))
    else:
        answer = confirm(client, code_of(person), password="not it")

    assert answer.status_code == 422
    assert not person.has_two_step()


def test_the_password_alone_does_not_sign_in_and_the_code_does(
    client: Client, settled: User
) -> None:
    first = give_in_password(client, settled, next="/audit/")

    assert first.headers["Location"] == reverse("web:sign-in-code")
    assert not is_signed_in(client)

    second = give_in_code(client, code_of(settled))

    assert second.headers["Location"] == "/audit/"
    assert is_signed_in(client)


def test_it_does_not_lead_elsewhere_afterwards(client: Client, settled: User) -> None:
    give_in_password(client, settled, next="https://evil.example/")

    assert give_in_code(client, code_of(settled)).headers["Location"] == reverse("web:overview")


def test_a_code_is_good_once(settled: User) -> None:
    code = code_of(settled)
    one, other = Client(), Client()
    for client in (one, other):
        give_in_password(client, settled)

    give_in_code(one, code)
    replayed = give_in_code(other, code)

    assert is_signed_in(one)
    assert replayed.status_code == 422
    assert not is_signed_in(other)


def test_an_older_code_is_worth_nothing_after_a_newer_one(settled: User) -> None:
    device = TotpDevice.objects.get(user=settled)
    newer = code_of(settled, steps=1)
    assert device.verify_token(newer)

    assert not device.verify_token(code_of(settled))


@pytest.mark.parametrize(
    "typed", ["", "12345", "1234567", "abcdef", "１２３４５６", "-12345", "9" * 4000]
)
def test_nonsense_is_refused(client: Client, settled: User, typed: str) -> None:
    give_in_password(client, settled)

    assert give_in_code(client, typed).status_code == 422
    assert not is_signed_in(client)


def test_wrong_codes_make_the_next_try_wait(client: Client, settled: User, clock: Clock) -> None:
    give_in_password(client, settled)
    assert give_in_code(client, wrong_code(settled)).status_code == 422

    early = give_in_code(client, code_of(settled))

    assert early.status_code == 429
    assert early.headers["Retry-After"] == "1"
    assert "Wait 1 second before" in text_of(early)
    clock.shift(timedelta(seconds=1))
    give_in_code(client, code_of(settled))
    assert is_signed_in(client)


def test_the_wait_stops_growing_so_that_the_owner_gets_in(settled: User, clock: Clock) -> None:
    device = TotpDevice.objects.get(user=settled)
    for _try in range(40):
        assert not device.verify_token(wrong_code(settled))
        clock.shift(timedelta(minutes=5))

    assert device.verify_token(code_of(settled))


def test_a_recovery_code_signs_in_once(client: Client, person: User) -> None:
    code = enrol(person)[3]
    give_in_password(client, person)

    give_in_code(client, code.upper().replace("-", " "), recovery=True)

    assert is_signed_in(client)
    again = Client()
    give_in_password(again, person)
    assert give_in_code(again, code, recovery=True).status_code == 422
    assert "9 of 10 unused" in text_of(client.get(reverse("web:two-step")))
    assert [entry.details for entry in audited("two_step.recovery")] == [{"left": 9}]


def test_new_recovery_codes_replace_the_old(client: Client, person: User) -> None:
    old = enrol(person)
    client.force_login(person)

    refused = client.post(reverse("web:new-recovery-codes"), {"proof": "not it"})
    made = client.post(reverse("web:new-recovery-codes"), {"proof": PASSWORD})

    assert refused.status_code == 422
    new = RECOVERY_CODE.findall(text_of(made))
    assert len(new) == 10
    visitor = Client()
    give_in_password(visitor, person)
    assert give_in_code(visitor, old[0], recovery=True).status_code == 422
    give_in_code(visitor, new[0], recovery=True)
    assert is_signed_in(visitor)


@pytest.mark.parametrize("proof", ["password", "code"])
def test_it_goes_off_by_the_password_or_a_code(
    client: Client, settled: User, proof: str, clock: Clock
) -> None:
    client.force_login(settled)
    url = reverse("web:stop-two-step")

    for wrong in ("not it", "", wrong_code(settled)):
        assert client.post(url, {"proof": wrong}).status_code == 422
    assert settled.has_two_step()
    clock.shift(timedelta(minutes=5))
    client.post(url, {"proof": PASSWORD if proof == "password" else code_of(settled)})

    assert not settled.has_two_step()
    assert not RecoveryCode.objects.filter(user=settled).exists()


def test_setting_it_up_ends_the_sign_ins_made_by_the_password_alone(person: User) -> None:
    here, elsewhere = Client(), Client()
    for client in (here, elsewhere):
        give_in_password(client, person)
    assert is_signed_in(elsewhere)

    here.post(reverse("web:start-two-step"))
    confirm(here, code_of(person))

    assert is_signed_in(here)
    assert not is_signed_in(elsewhere)


def test_the_secret_is_encrypted_and_turns_with_the_field_keys(
    settled: User, settings: Any
) -> None:
    secret = TotpDevice.objects.get(user=settled).secret

    def stored() -> str:
        with connection.cursor() as cursor:
            cursor.execute("SELECT secret FROM tenants_totpdevice")
            return str(cursor.fetchone()[0])

    before = stored()
    assert secret not in before
    settings.FIELD_KEYS = ["bmV3LWtleS1vbmx5LWZvci10ZXN0cy0wMDAwMDAwMDA=", *settings.FIELD_KEYS]
    rotate_rows()
    settings.FIELD_KEYS = settings.FIELD_KEYS[:1]
    assert stored() != before
    assert TotpDevice.objects.get(user=settled).secret == secret


def test_everything_is_audited_and_no_secret_is_in_it(client: Client, person: User) -> None:
    recovery = enrol(person)
    secret = TotpDevice.objects.get(user=person).secret
    give_in_password(client, person)
    bad = wrong_code(person)
    give_in_code(client, bad)
    give_in_code(client, recovery[0], recovery=True)
    client.post(reverse("web:new-recovery-codes"), {"proof": PASSWORD})
    client.post(reverse("web:stop-two-step"), {"proof": PASSWORD})

    entries = AuditEntry.objects.filter(target=person.get_username())
    seen = list(entries.order_by("number").values_list("action", "outcome"))
    assert seen == [
        ("two_step.enrol", "done"),
        ("two_step.code", "failed"),
        ("two_step.recovery", "done"),
        ("account.sign_in", "done"),
        ("two_step.new_codes", "done"),
        ("two_step.remove", "done"),
    ]
    assert all(entry.tenant is not None for entry in entries), "the tenant's auditors see it"
    written = json.dumps([entry.content() for entry in AuditEntry.objects.all()])
    for word in (secret, bad, PASSWORD, *recovery):
        assert word not in written
