"""The second of two editors sees what the first changed, and merges or overwrites knowingly."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import reverse

from console.policies.models import NetworkPolicyRevision
from tests.console.cast import World


@pytest.fixture
def second(world: World, client: Client) -> Client:
    """Began with revision 1, which the admin replaced meanwhile."""
    first = Client()
    first.force_login(world.people["admin"])
    save(first, world, number=1, allow=["first.example"], reason="For the robots")
    client.force_login(world.people["owner"])
    return client


def save(client: Client, world: World, button: str = "save", value: str = "1", **form: object):
    address = reverse("web:network", args=[world.space.pk])
    return client.post(address, {button: value, "allow": [], **form})


def last(world: World) -> NetworkPolicyRevision:
    return NetworkPolicyRevision.objects.filter(space=world.space).latest("number")


def test_saving_is_refused_and_both_changes_are_shown(second: Client, world: World) -> None:
    response = save(second, world, number=1, allow=["second.example"])

    text = response.content.decode()
    assert response.status_code == 409
    assert last(world).number == 2
    assert "admin-acme saved revision 2" in text
    theirs, mine = text.split("Meanwhile this was changed")[1].split("You want this")
    assert "allow first.example" in theirs
    assert "allow second.example" in mine.split("</ul>")[0]
    assert 'value="second.example"' in text


def test_it_is_told_while_typing_already(second: Client, world: World) -> None:
    address = reverse("web:network", args=[world.space.pk])
    headers = {"hx-request": "true", "hx-target": "preview"}

    text = second.post(address, {"number": 1, "allow": ["x.example"]}, headers=headers).content

    assert b"saved revision 2" in text
    assert b'name="save"' not in text


def test_a_merge_holds_both_changes_and_is_looked_at_before_it_is_saved(
    second: Client, world: World
) -> None:
    form = {"number": 1, "allow": ["second.example"], "inbound": "on"}
    text = save(second, world, "merge", **form).content.decode()

    assert last(world).number == 2
    assert re.findall(r'name="allow" value="([^"]+)"', text) == ["first.example", "second.example"]
    assert 'name="number" value="2"' in text

    save(second, world, number=2, allow=["first.example", "second.example"], inbound="on")
    assert (last(world).allow, last(world).inbound) == (["first.example", "second.example"], True)


def test_what_only_theirs_makes_valid_is_merged_too(second: Client, world: World) -> None:
    """Revision 1 is open, so that a domain can't be allowed in it; the admin has closed it."""
    text = save(second, world, number=1, allow=["mine.example"], outbound="on").content.decode()
    assert 'name="merge"' in text
    assert 'name="over"' not in text

    form = {"number": 1, "allow": ["mine.example"], "outbound": "on"}
    text = save(second, world, "merge", **form).content.decode()

    assert re.findall(r'name="allow" value="([^"]+)"', text) == ["first.example", "mine.example"]
    assert 'name="save"' in text


def test_overwriting_names_the_revision_that_it_undoes(second: Client, world: World) -> None:
    save(second, world, "over", "2", number=1, allow=["second.example"])

    assert (last(world).number, last(world).allow) == (3, ["second.example"])


def test_overwriting_one_change_does_not_overwrite_the_next(second: Client, world: World) -> None:
    save(second, world, number=2, allow=["third.example"])

    response = save(second, world, "over", "2", number=1, allow=["second.example"])

    assert response.status_code == 409
    assert last(world).allow == ["third.example"]
