"""The page of a stuck build says so, what will happen, and lets operators take it up or cancel it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from skills import tasks
from skills.models import Build, BuildState
from tests.console.cast import World

TAKE_UP = "Take it up now"


@pytest.fixture
def handed_on(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(tasks.run_build, "delay", found.append)
    return found


def silent(world: World, **past: float) -> None:
    Build.objects.update(
        state=BuildState.RUNNING,
        attempt=1,
        finished_at=None,
        heartbeat_at=timezone.now() - timedelta(**past),
    )


def build_page(client: Client, world: World, person: str = "operator") -> str:
    client.force_login(world.people[person])
    return client.get(reverse("web:build", args=[world.build.pk])).content.decode()


def test_a_living_build_says_nothing(world: World, client: Client) -> None:
    silent(world, seconds=5)

    assert "stuck" not in build_page(client, world)


def test_it_is_named_and_told_what_comes(world: World, client: Client) -> None:
    silent(world, seconds=40)
    page = build_page(client, world)
    assert "This build is stuck" in page
    assert "The sweep takes it up in" in page
    assert "It can be taken up in" in page
    assert TAKE_UP not in page

    silent(world, minutes=3)
    page = build_page(client, world)
    assert "takes it up within a minute" in page
    assert TAKE_UP in page
    assert TAKE_UP not in build_page(client, world, "viewer")

    Build.objects.update(attempt=3)
    assert "the sweep ends it as failed" in build_page(client, world)
    Build.objects.update(cancel_requested_at=timezone.now())
    assert "whoever takes it up ends it" in build_page(client, world)


def test_a_queued_one_that_nobody_takes_is_named(world: World, client: Client) -> None:
    Build.objects.update(
        state=BuildState.QUEUED, finished_at=None, created_at=timezone.now() - timedelta(hours=1)
    )

    page = build_page(client, world)

    assert "No worker has taken this build up" in page
    assert TAKE_UP in page


def test_an_operator_takes_it_up(
    world: World, client: Client, handed_on: list[str], django_capture_on_commit_callbacks: Any
) -> None:
    silent(world, minutes=3)
    client.force_login(world.people["operator"])

    with django_capture_on_commit_callbacks(execute=True):
        response = client.post(reverse("web:take-up-build", args=[world.build.pk]))

    assert response.headers["Location"] == reverse("web:build", args=[world.build.pk])
    assert handed_on == [world.build.pk]


def test_what_is_not_stuck_is_refused_in_words(
    world: World, client: Client, handed_on: list[str]
) -> None:
    silent(world, seconds=1)
    client.force_login(world.people["operator"])

    response = client.post(reverse("web:take-up-build", args=[world.build.pk]))

    assert response.status_code == 409
    assert b"This build is not stuck" in response.content
    assert handed_on == []
