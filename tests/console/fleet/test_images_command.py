"""`manage.py images`: templates of a backend from a terminal."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from console.audit.models import AuditEntry
from console.fleet.models import Backend
from sandboxes.registry import PROVIDERS, Provider
from sandboxes.testing.simulated import SimulatedProvider
from tests.console.cast import World
from tests.console.fleet import memory_backend


@pytest.fixture
def account(world: World, monkeypatch: pytest.MonkeyPatch) -> SimulatedProvider:
    monkeypatch.setitem(
        PROVIDERS, "memory", Provider("memory", "Memory", "tests.console.fleet.memory_backend")
    )
    monkeypatch.setattr(memory_backend, "ACCOUNTS", {})
    monkeypatch.setattr("console.fleet.management.commands.images._LOOK_EVERY_S", 0.0)
    Backend.objects.filter(pk=world.backend.pk).update(
        name="Here", provider="memory", settings={"account": "one"}
    )
    return memory_backend.account("one")


def images(*words: str) -> str:
    out = StringIO()
    call_command("images", *words, stdout=out)
    return out.getvalue()


def test_what_is_needed_and_there_is_listed(account: SimulatedProvider) -> None:
    said = images("Here")
    assert "needed    base: ready" in said
    assert "template  base (base) ready" in said
    account.templates.clear()
    assert "needed    base: There is no template" in images("Here")


def test_a_build_is_begun_and_told_until_its_end(
    account: SimulatedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    account.templates.clear()
    account.builds_take_time = True
    assert "base is being built: building" in images("Here", "build", "base", "--no-wait")
    looks = iter([0.2, 0.9])

    def end(_: float) -> None:
        if (fraction := next(looks, None)) is not None:
            account.building["base"] = fraction
        elif account.building.pop("base", None) is not None:
            account.templates["base"] = account.clock()

    monkeypatch.setattr("console.fleet.management.commands.images.time.sleep", end)
    said = images("Here", "rebuild", "base")
    assert "base: 0% building" in said
    assert "base is there: base" in said
    begun = AuditEntry.objects.filter(action="template.build").order_by("pk")
    assert [line.details["rebuild"] for line in begun] == [False, True]


def test_errors_are_sentences(account: SimulatedProvider) -> None:
    with pytest.raises(CommandError, match="Name the template"):
        images("Here", "build")
    with pytest.raises(CommandError, match="no template called"):
        images("Here", "status", "nowhere")
    with pytest.raises(CommandError, match="stand on it"):
        images("Here", "delete", "base")
    with pytest.raises(CommandError, match="no backend called"):
        images("Nowhere")
