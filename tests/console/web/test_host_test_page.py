"""Would a sandbox reach this host? The page says so, by which rule and on which backend."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import reverse

from console.fleet.policies import Trial
from console.web.policies import hosts
from sandboxes.errors import Unavailable
from tests.console.cast import World

LIVE = {"hx-request": "true"}


def ask(client: Client, world: World, host: str, *, live: bool = True, **form: object) -> str:
    response = client.post(
        reverse("web:network-test", args=[world.space.pk]),
        {"host": host, **form},
        headers=LIVE if live else {},
    )
    return re.sub(r"\s+", " ", response.content.decode())


@pytest.fixture
def owner(world: World, client: Client) -> Client:
    client.force_login(world.people["owner"])
    return client


@pytest.mark.parametrize(
    ("form", "host", "verdict", "rule"),
    [
        ({"outbound": "on"}, "203.0.113.7", "allowed", "the outbound switch"),
        ({}, "203.0.113.7", "denied", "the outbound switch"),
        ({}, "http://169.254.169.254/latest", "denied", "the ranges that are always closed"),
        ({"allow": ["203.0.113.0/24"]}, "203.0.113.7", "allowed", "the allow entry 203.0.113.0/24"),
        (
            {"outbound": "on", "deny": ["203.0.113.0/24"]},
            "https://203.0.113.7:8443/x",
            "denied",
            "the deny entry 203.0.113.0/24",
        ),
    ],
)
def test_the_form_is_judged_saved_or_not(
    form: dict[str, object], host: str, verdict: str, rule: str, owner: Client, world: World
) -> None:
    text = ask(owner, world, host, number=1, **form)

    assert f">{verdict}</span>" in text
    assert f"Decided by {rule}." in text
    assert world.backend.name in text


def test_without_scripts_the_whole_page_comes_back_and_judges_what_is_saved(
    owner: Client, world: World
) -> None:
    text = ask(owner, world, "203.0.113.7", live=False)

    assert "<html" in text
    assert "Decided by the outbound switch." in text
    assert "By revision 1" in text
    assert 'value="203.0.113.7"' in text


def test_a_viewer_judges_the_saved_policy(world: World, client: Client) -> None:
    client.force_login(world.people["viewer"])

    assert ">allowed</span>" in ask(client, world, "203.0.113.7")


def test_a_form_that_cannot_be_saved_is_not_judged(owner: Client, world: World) -> None:
    text = ask(owner, world, "203.0.113.7", number=1, allow=["nodots"])

    assert "mend the marked entries first" in text


@pytest.mark.parametrize("host", ["", "http://", "//"])
def test_what_is_no_host_is_said(host: str, owner: Client, world: World) -> None:
    assert "Type a host name" in ask(owner, world, host, number=1)


@pytest.mark.parametrize(
    ("allow", "reached", "words"),
    [
        ([], True, "does not enforce it"),
        (["203.0.113.7"], False, "look at the host itself"),
        (["203.0.113.7"], True, ""),
    ],
)
def test_an_attempt_that_contradicts_the_policy_is_explained(
    allow: list[str],
    reached: bool,
    words: str,
    owner: Client,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def tried(**_: object) -> Trial:
        return Trial(reached=reached, answer="HTTP 200")

    monkeypatch.setattr(hosts, "try_host", tried)

    text = ask(owner, world, "203.0.113.7", number=1, allow=allow, really="on")

    assert "HTTP 200" in text
    assert words in text
    assert ("notice bad" in text) == bool(words)


def test_a_backend_that_is_away_leaves_the_verdict(
    owner: Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tried(**_: object) -> Trial:
        raise Unavailable("The cluster does not answer; try again.")

    monkeypatch.setattr(hosts, "try_host", tried)

    text = ask(owner, world, "203.0.113.7", number=1, really="on")

    assert ">denied</span>" in text
    assert "The cluster does not answer" in text


def test_only_who_may_edit_may_try_for_real(world: World, client: Client) -> None:
    client.force_login(world.people["viewer"])

    assert "needs the right" in ask(client, world, "203.0.113.7", live=False, really="on")
