"""Backends are asked every minute whether they answer: what came of it, and how fast, is kept in the row."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync

from console.fleet import tasks
from console.fleet.models import Backend
from console.fleet.services import check_backend
from sandboxes.registry import PROVIDERS, Provider
from tests.console.cast import World
from tests.console.fleet import memory_backend


@pytest.fixture
def answering(world: World, monkeypatch: pytest.MonkeyPatch) -> Backend:
    kind = Provider(memory_backend.PROVIDER, "Memory", memory_backend.__name__)
    monkeypatch.setitem(PROVIDERS, memory_backend.PROVIDER, kind)
    monkeypatch.setattr(memory_backend, "ACCOUNTS", {})
    world.backend.provider = memory_backend.PROVIDER
    world.backend.settings = {"account": "one"}
    world.backend.check_error = "It did not answer."
    world.backend.save()
    return world.backend


def test_one_that_answers_is_known_with_how_long_it_took(answering: Backend) -> None:
    tasks.check_one_backend.run(answering.pk)

    row = Backend.objects.get(pk=answering.pk)
    assert row.check_error == ""
    assert row.check_took_ms is not None
    assert row.check_took_ms < 1000
    assert row.checked_at is not None
    assert row.capabilities["pause"] is True


def test_one_that_does_not_answer_is_known_with_why(world: World) -> None:
    Backend.objects.update(check_took_ms=5)

    tasks.check_one_backend.run(world.backend.pk)

    row = Backend.objects.get(pk=world.backend.pk)
    assert row.check_error
    assert row.check_took_ms is None
    assert row.checked_at is not None


def test_one_that_is_deleted_meanwhile_is_no_trouble(answering: Backend) -> None:
    tasks.check_one_backend.run("bkd_gone")
    row = Backend.objects.create(
        tenant=answering.tenant,
        name="Goes",
        provider=memory_backend.PROVIDER,
        settings={"account": "one"},
    )
    pk = row.pk
    row.delete()
    row.pk = pk

    async_to_sync(check_backend)(row)

    assert not Backend.objects.filter(pk=pk).exists()


def test_the_beat_hands_each_to_a_worker(
    world: World, other_world: World, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    handed: list[str] = []

    def hand(args: tuple[str], *, expires: int) -> None:
        assert expires == 60
        handed.extend(args)

    monkeypatch.setattr(tasks.check_one_backend, "apply_async", hand)

    tasks.check_backends.run()

    assert set(handed) == {world.backend.pk, other_world.backend.pk}
    entry = settings.CELERY_BEAT_SCHEDULE["check-backends"]
    assert (entry["task"], entry["schedule"]) == (tasks.check_backends.name, 60)
