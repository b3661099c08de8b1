"""Editing the network policy: rows, presets, previews, refusals, restoring."""

from __future__ import annotations

import dataclasses
import re

import pytest
from django.test import Client
from django.urls import reverse

from console.fleet.models import Session
from console.policies.models import NetworkPolicyRevision
from sandboxes.capabilities import Capabilities
from tests.console.cast import World


@pytest.fixture
def owner(world: World, client: Client) -> Client:
    client.force_login(world.people["owner"])
    return client


def post(client: Client, world: World, button: str, value: str = "1", **form: object) -> object:
    form = {"number": 1, "allow": [], "deny": [], "reason": "", button: value, **form}
    return client.post(reverse("web:network", args=[world.space.pk]), form)


def submit(
    client: Client, world: World, button: str, *args: str, **form: object
) -> tuple[int, str]:
    response = post(client, world, button, *args, **form)
    return response.status_code, response.content.decode()


def numbers(world: World) -> list[int]:
    rows = NetworkPolicyRevision.objects.filter(space=world.space)
    return sorted(rows.values_list("number", flat=True))


def rows(text: str, name: str) -> list[str]:
    return re.findall(rf'<input id="{name}-\d+" name="{name}" value="([^"]*)"', text)


def test_saving_adds_a_revision_in_normal_form(owner: Client, world: World) -> None:
    status, _ = submit(owner, world, "save", allow=["PyPI.org", "", "203.0.113.7"], reason="builds")

    assert status == 302
    last = NetworkPolicyRevision.objects.get(space=world.space, number=2)
    assert (last.outbound, last.allow) == (False, ["203.0.113.7/32", "pypi.org"])
    assert (last.created_by, last.reason) == (world.people["owner"], "builds")


def test_a_preview_saves_nothing_and_says_what_would_change_for_whom(
    owner: Client, world: World
) -> None:
    Session.objects.create(
        space=world.space, session_id="talk-2", backend=world.backend, state="paused"
    )

    status, text = submit(owner, world, "preview", allow=["pypi.org"])

    assert status == 200
    assert "allow pypi.org" in text
    assert "outbound: closed" in text
    assert "1 running and 1 paused sessions" in text
    assert 'name="save"' in text
    assert numbers(world) == [1]


def test_nothing_can_be_saved_before_something_is_changed(owner: Client, world: World) -> None:
    text = owner.get(reverse("web:network", args=[world.space.pk])).content.decode()

    assert "Nothing is changed." in text
    assert 'name="save"' not in text


def test_each_bad_entry_is_told_in_its_row_and_nothing_is_lost(owner: Client, world: World) -> None:
    typed = ["ok.example", "nodots", "::1", "OK.example."]

    status, text = submit(owner, world, "save", allow=typed, deny=["example.com"])

    assert status == 422
    assert numbers(world) == [1]
    assert rows(text, "allow") == [*typed, ""]
    assert "4 entries keep it from being saved" in text
    for place, words in (
        ("allow-1", "no full domain name"),
        ("allow-2", "IPv6 and ports"),
        ("allow-3", "already in the list as ok.example"),
        ("deny-0", "only IPv4 addresses"),
    ):
        assert words in text.split(f'id="{place}-note"')[1].split("</div>")[0]


def test_a_domain_that_waits_for_outbound_is_marked_where_it_stands(
    owner: Client, world: World
) -> None:
    _, text = submit(
        owner, world, "preview", allow=["203.0.113.1", "b.example", "a.example"], outbound="on"
    )

    for place in ("allow-1", "allow-2"):
        assert "switch outbound off first" in text.split(f'id="{place}-note"')[1][:200]
    assert "switch outbound off first" not in text.split('id="allow-0-note"')[1][:60]


def test_entries_without_effect_are_told_but_can_be_saved(owner: Client, world: World) -> None:
    _, text = submit(owner, world, "preview", allow=["*.pypi.org", "files.pypi.org"])

    assert "*.pypi.org covers it" in text.split('id="allow-1-note"')[1][:200]
    assert "1 entry may not do what you expect" in text
    assert 'name="save"' in text


def test_while_typing_only_the_preview_and_the_remarks_are_sent(
    owner: Client, world: World
) -> None:
    response = owner.post(
        reverse("web:network", args=[world.space.pk]),
        {"number": 1, "allow": ["pypi.org, nodots", "ok.example"]},
        headers={"hx-request": "true", "hx-target": "preview"},
    )

    text = response.content.decode()
    assert text.startswith('<div id="preview"')
    assert "<input" not in text
    assert "no full domain name" in text.split('id="allow-0-note"')[1].split("</div>")[0]
    assert 'id="allow-1-note"' in text


def test_rows_are_added_removed_and_pasted_in_bulk(owner: Client, world: World) -> None:
    _, added = submit(owner, world, "add-row", "allow", allow=["a.example b.example,c.example"])
    _, removed = submit(
        owner, world, "remove-row", "allow:1", allow=["a.example", "b.example", "c.example"]
    )

    assert rows(added, "allow") == ["a.example", "b.example", "c.example", ""]
    assert 'value=""' in added.split("autofocus")[0].rsplit("<input", 1)[1]
    assert rows(removed, "allow") == ["a.example", "c.example", ""]


def test_a_preset_fills_the_form_and_leaves_inbound_alone(owner: Client, world: World) -> None:
    _, text = submit(owner, world, "preset", "registries", inbound="on", outbound="on")

    assert "pypi.org" in rows(text, "allow")
    assert re.search(r'id="id_inbound"[^>]* checked', text)
    assert not re.search(r'id="id_outbound"[^>]* checked', text)
    assert re.search(r'value="registries" aria-pressed="true"', text)
    assert numbers(world) == [1]


def test_saving_what_holds_already_adds_nothing(owner: Client, world: World) -> None:
    submit(owner, world, "save", outbound="on")

    assert numbers(world) == [1]


def test_an_older_revision_is_restored_after_a_look_at_it(owner: Client, world: World) -> None:
    submit(owner, world, "save", allow=["pypi.org"])

    address = reverse("web:network", args=[world.space.pk])
    history = owner.get(address).content.decode()
    page = owner.get(address, {"restore": 1}).content.decode()

    assert 'href="?restore=1">Undo' in history
    assert "Restore revision 1" in page
    assert "outbound: open" in page
    assert "allow pypi.org" in page.split('id="preview"')[1].split('name="save"')[0]


def test_what_the_backend_cannot_enforce_is_told_and_refused(owner: Client, world: World) -> None:
    able = {
        field.name: field.name == "outbound_switch" for field in dataclasses.fields(Capabilities)
    }
    world.backend.capabilities = {**able, "notes": {"outbound_domain_lists": "Only on and off."}}
    world.backend.save()

    status, text = submit(owner, world, "save", allow=["pypi.org"])

    assert status == 422
    assert "enforce lists of domains" in text
    assert "Only on and off." in text
    assert 'name="save"' not in text
    assert numbers(world) == [1]


def test_a_viewer_sees_it_but_has_no_buttons(world: World, client: Client) -> None:
    client.force_login(world.people["viewer"])

    text = client.get(reverse("web:network", args=[world.space.pk])).content.decode()

    assert "<fieldset disabled>" in text
    for button in (
        'name="save"',
        'name="add-row"',
        'name="remove-row"',
        'id="import-file"',
        "?restore=",
    ):
        assert button not in text


def test_an_incomplete_form_changes_nothing(owner: Client, world: World) -> None:
    status, text = submit(owner, world, "save", number="")

    assert status == 422
    assert "load the page again" in text
    assert numbers(world) == [1]


@pytest.mark.parametrize("number", ["9" * 30, "9" * 5000, "-1", "x", "²"])
def test_numbers_that_are_none_are_no_fault_of_the_console(
    number: str, owner: Client, world: World
) -> None:
    address = reverse("web:network", args=[world.space.pk])

    assert owner.get(address, {"restore": number}).status_code == 200
    assert submit(owner, world, "over", number, allow=["a.example"])[0] == 302
    assert submit(owner, world, "remove-row", f"allow:{number}", number=2)[0] == 200
    assert submit(owner, world, "preview", number=number)[0] == 422
