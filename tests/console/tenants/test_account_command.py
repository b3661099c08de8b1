"""`manage.py account`: the way back in for people, and out, by whoever runs the console."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from tests.console.cast import World
from tests.console.web.account_world import (
    audited,
    enrol,
    give_in_password,
    give_password,
    is_signed_in,
)


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("account", *arguments, stdout=out)
    return out.getvalue()


def test_a_lost_second_step_is_reset_and_everybody_out(world: World) -> None:
    person = give_password(world.people["owner"])
    client = Client()
    give_in_password(client, person)
    enrol(person)

    told = run("reset-two-step", person.get_username())

    assert "1 sign-ins were ended" in told
    assert not person.has_two_step()
    assert not person.recovery_codes.exists()
    assert not is_signed_in(client)
    (entry,) = audited("two_step.reset")
    assert (entry.actor, entry.target, entry.tenant) == (
        "system",
        person.get_username(),
        world.tenant,
    )
    assert give_in_password(client, person).status_code == 302
    assert is_signed_in(client)


def test_nothing_to_reset_is_said(world: World) -> None:
    assert "nothing was changed" in run("reset-two-step", world.people["owner"].get_username())
    assert audited("two_step.reset") == []


def test_a_person_is_let_in_no_more_and_then_again(world: World) -> None:
    person = give_password(world.people["owner"])
    client = Client()
    give_in_password(client, person)

    run("deactivate", person.get_username())
    assert not is_signed_in(client)
    assert give_in_password(client, person).status_code == 422
    run("activate", person.get_username())
    assert not is_signed_in(client), "what was ended stays ended"
    give_in_password(client, person)

    assert is_signed_in(client)
    assert len(audited("account.deactivate") + audited("account.activate")) == 2


def test_an_unknown_name_is_an_error(db: None) -> None:
    with pytest.raises(CommandError, match="Nobody is called 'ghost'"):
        run("reset-two-step", "ghost")
