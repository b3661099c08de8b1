"""Deleting a space in the browser: what goes is counted, its name is typed, and then nothing new happens in it."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from console.fleet import tasks
from console.tenants.models import Space
from skills.models import Release
from tests.console.cast import World


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(tasks.remove_space, "delay", found.append)
    return found


@pytest.fixture
def admin(world: World, client: Client) -> Client:
    client.force_login(world.people["admin"])
    return client


def test_it_says_what_goes_and_takes_the_name_for_a_yes(
    world: World,
    admin: Client,
    asked: list[str],
    django_capture_on_commit_callbacks: Any,
) -> None:
    settings = admin.get(reverse("web:space-settings", args=[world.space.pk])).content.decode()
    address = reverse("web:delete-space", args=[world.space.pk])
    assert address in settings
    shown = admin.get(address).content.decode()
    assert "1 session with its history" in shown
    assert "1 runs or sleeps now" in shown
    assert "1 release with its snapshot" in shown
    refused = admin.post(address, {"confirm": "Lab"})
    assert refused.status_code == 422
    assert "which is “lab”" in refused.content.decode()
    assert asked == []

    with django_capture_on_commit_callbacks(execute=True):
        done = admin.post(address, {"confirm": "lab"}, follow=True)
    assert asked == [world.space.pk]
    assert "being deleted" in done.content.decode()
    page = admin.get(reverse("web:space", args=[world.space.pk])).content.decode()
    assert "as admin-acme asked" in page
    blocked = admin.post(reverse("web:space-settings", args=[world.space.pk]), {"name": "X"})
    assert blocked.status_code == 409


def test_snapshots_out_of_reach_are_left_only_with_a_tick(
    world: World, admin: Client, asked: list[str]
) -> None:
    Release.objects.update(fingerprint="of another account")
    address = reverse("web:delete-space", args=[world.space.pk])
    assert "another provider account" in admin.get(address).content.decode()
    assert admin.post(address, {"confirm": "lab"}).status_code == 422
    answer = admin.post(address, {"confirm": "lab", "leave_snapshots": "on"})
    assert answer.status_code == 302
    assert Space.objects.get(pk=world.space.pk).delete_leaves_snapshots


def test_a_space_owner_is_not_offered_it(world: World, client: Client) -> None:
    client.force_login(world.people["owner"])
    settings = client.get(reverse("web:space-settings", args=[world.space.pk])).content.decode()
    assert reverse("web:delete-space", args=[world.space.pk]) not in settings
