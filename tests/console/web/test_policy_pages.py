"""Editing the network policy: previews, refusals, and the second of two editors."""

from __future__ import annotations

import dataclasses

import pytest
from django.test import Client
from django.urls import reverse

from console.policies.models import NetworkPolicyRevision
from sandboxes.capabilities import Capabilities
from tests.console.cast import World


@pytest.fixture
def owner(world: World, client: Client) -> Client:
    client.force_login(world.people["owner"])
    return client


def submit(client: Client, world: World, **values: object) -> tuple[int, str]:
    form = {"number": 1, "allow": "", "deny": "", "reason": "", **values}
    response = client.post(reverse("web:network", args=[world.space.pk]), form)
    return response.status_code, response.content.decode()


def numbers(world: World) -> list[int]:
    rows = NetworkPolicyRevision.objects.filter(space=world.space)
    return sorted(rows.values_list("number", flat=True))


def test_saving_adds_a_revision_in_normal_form(owner: Client, world: World) -> None:
    status, _ = submit(owner, world, allow="PyPI.org\n203.0.113.7", reason="builds")

    assert status == 302
    last = NetworkPolicyRevision.objects.get(space=world.space, number=2)
    assert (last.outbound, last.allow) == (False, ["203.0.113.7/32", "pypi.org"])
    assert last.created_by == world.people["owner"]


def test_a_preview_saves_nothing_and_says_what_would_change(owner: Client, world: World) -> None:
    status, text = submit(owner, world, allow="pypi.org", preview="1")

    assert status == 200
    assert "allow pypi.org" in text
    assert numbers(world) == [1]


def test_every_bad_entry_is_named_and_nothing_is_lost(owner: Client, world: World) -> None:
    status, text = submit(owner, world, allow="ok.example\nno good\n::1", deny="example.com")

    assert status == 422
    assert numbers(world) == [1]
    for entry in ("no good", "::1", "example.com", "ok.example"):
        assert entry in text


def test_the_second_editor_sees_the_firsts_change(owner: Client, world: World) -> None:
    submit(owner, world, allow="first.example")

    status, text = submit(owner, world, allow="second.example", number=1)

    assert status == 422
    assert "changed meanwhile" in text
    assert "second.example" in text
    assert numbers(world) == [1, 2]


def test_saving_what_holds_already_adds_nothing(owner: Client, world: World) -> None:
    submit(owner, world, outbound="on")

    assert numbers(world) == [1]


def test_an_older_revision_can_be_restored(owner: Client, world: World) -> None:
    submit(owner, world, allow="pypi.org")

    page = owner.get(reverse("web:network", args=[world.space.pk]), {"restore": 1})

    assert "Restore revision 1" in page.content.decode()


def test_what_the_backend_cannot_enforce_is_refused(owner: Client, world: World) -> None:
    able = {
        field.name: field.name == "outbound_switch" for field in dataclasses.fields(Capabilities)
    }
    world.backend.capabilities = {**able, "notes": {}}
    world.backend.save()

    status, text = submit(owner, world, allow="pypi.org")

    assert status == 422
    assert "enforce lists of domains" in text
    assert numbers(world) == [1]
