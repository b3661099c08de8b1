"""A backend's pages: add, edit, point elsewhere, verify, templates. Nothing secret is ever shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from console.audit.models import AuditEntry
from console.fleet import tasks
from console.fleet.models import Backend, Verification, VerificationState
from console.tenants.models import Space
from sandboxes.errors import Unavailable
from sandboxes.network import CLOSED
from sandboxes.registry import PROVIDERS, Provider
from sandboxes.testing.simulated import SimulatedProvider
from sandboxes.types import CreateRequest, TimeoutPolicy
from skills.models import Release, ReleaseState
from tests.console.cast import World
from tests.console.fleet import memory_backend
from tests.console.fleet.conftest import redis, redis_server

__all__ = ["redis", "redis_server"]

SECRET = "s3cret-key-never-shown"


@pytest.fixture
def admin(world: World, client: Client) -> Client:
    client.force_login(world.people["admin"])
    return client


@pytest.fixture
def memory(world: World, monkeypatch: pytest.MonkeyPatch) -> Backend:
    """The world's backend, on a simulated account."""
    monkeypatch.setitem(
        PROVIDERS, "memory", Provider("memory", "Memory", "tests.console.fleet.memory_backend")
    )
    monkeypatch.setattr(memory_backend, "ACCOUNTS", {})
    Backend.objects.filter(pk=world.backend.pk).update(
        provider="memory", settings={"account": "one"}
    )
    world.build.delete()
    world.session.delete()
    return Backend.objects.get(pk=world.backend.pk)


def url(name: str, *args: object) -> str:
    return reverse(f"web:{name}", args=args)


def cube(**changes: Any) -> dict[str, Any]:
    return {
        "name": "Cluster",
        "api_url": "https://203.0.113.10",
        "proxy_url": "https://203.0.113.11",
        "sandbox_domain": "cube.app",
        "http_timeout_s": "35",
        "template": "base",
        "api_key": SECRET,
        **changes,
    }


def test_every_kind_can_be_chosen_and_has_its_form(admin: Client) -> None:
    chooser = admin.get(url("new-backend")).content.decode()
    for name, provider in PROVIDERS.items():
        assert f"?provider={name}" in chooser
        form = admin.get(url("new-backend"), {"provider": name})
        assert form.status_code == 200
        assert provider.label.replace("(", "(") in form.content.decode()


def test_bad_addresses_are_refused_and_nothing_typed_is_lost_but_the_secret(
    admin: Client,
) -> None:
    before = Backend.objects.count()
    path = url("new-backend") + "?provider=cube"
    for bad in (
        "http://169.254.169.254/",
        "http://10.0.0.1",
        "ftp://x.example",
        "http://localhost",
    ):
        answer = admin.post(path, cube(proxy_url=bad)).content.decode()
        assert "notice bad" in answer
        assert bad in answer
        assert SECRET not in answer
    assert Backend.objects.count() == before


def test_an_added_backend_is_checked_and_its_secret_is_not_shown(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = admin.post(
        url("new-backend") + "?provider=cube",
        cube(api_url="http://127.0.0.1:9", proxy_url="http://127.0.0.1:9", allow_private="on"),
    )
    row = Backend.objects.get(name="Cluster")
    assert answer.headers["Location"] == url("backend", row.pk)
    assert row.secrets == {"api_key": SECRET}
    assert row.check_error
    shown = admin.get(url("backend", row.pk)).content.decode()
    assert row.check_error in shown.replace("&#x27;", "'")
    assert SECRET not in shown
    assert "***" in shown
    edit = admin.get(url("edit-backend", row.pk)).content.decode()
    assert SECRET not in edit
    assert "Leave empty to keep it" in edit


def test_an_empty_secret_keeps_and_a_tick_removes(admin: Client) -> None:
    row = Backend.objects.create(
        tenant_id=Backend.objects.get().tenant_id,
        name="Cluster",
        provider="cube",
        settings={"api_url": "https://203.0.113.10", "proxy_url": "https://203.0.113.11"},
        secrets={"api_key": SECRET},
    )
    path = url("edit-backend", row.pk)
    admin.post(path, cube(api_key="", template="other"))
    row.refresh_from_db()
    assert (row.secrets, row.settings["template"]) == ({"api_key": SECRET}, "other")
    answer = admin.post(path, {**cube(api_key=""), "clear-api_key": "on"})
    assert answer.headers["Location"] == url("confirm-backend", row.pk), "that is another account"
    row.refresh_from_db()
    assert row.secrets == {"api_key": SECRET}, "and nothing is saved before it is confirmed"


def test_pointing_elsewhere_shows_what_falls_silent_then_offers_a_rebuild(
    admin: Client, memory: Backend, world: World
) -> None:
    Release.objects.update(state=ReleaseState.ACTIVE, fingerprint=memory.fingerprint)
    Space.objects.update(current_release=world.release)
    form = {"name": "Here", "account": "one", "api_url": "https://new.example", "pauses": "on"}
    answer = admin.post(url("edit-backend", memory.pk), form)
    assert answer.headers["Location"] == url("confirm-backend", memory.pk)
    page = admin.get(url("confirm-backend", memory.pk)).content.decode()
    assert "Lab 1" in page
    assert "fall silent" in page
    assert Backend.objects.get(pk=memory.pk).fingerprint == memory.fingerprint
    admin.post(url("confirm-backend", memory.pk))
    assert Backend.objects.get(pk=memory.pk).settings["api_url"] == "https://new.example"
    shown = admin.get(url("backend", memory.pk)).content.decode()
    assert url("rebuild", world.release.pk) in shown
    again = admin.post(url("confirm-backend", memory.pk))
    assert again.headers["Location"] == url("edit-backend", memory.pk)


def test_an_account_that_cannot_be_asked_needs_a_tick(
    admin: Client, memory: Backend, redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:

    async def dead(settings: object) -> None:
        raise Unavailable("It is down.")

    monkeypatch.setattr(memory_backend, "open_client", dead)
    form = {"name": "Here", "account": "two", "pauses": "on"}
    admin.post(url("edit-backend", memory.pk), form)
    refused = admin.post(url("confirm-backend", memory.pk))
    assert refused.status_code == 409
    assert 'name="force"' in refused.content.decode()
    admin.post(url("confirm-backend", memory.pk), {"force": "1"})
    assert Backend.objects.get(pk=memory.pk).settings["account"] == "two"


def test_a_new_key_of_the_same_account_is_proven_before_saving(
    admin: Client, memory: Backend, world: World
) -> None:
    account = memory_backend.account("one")
    snapshot = _snapshot(account)
    Release.objects.update(
        state=ReleaseState.ACTIVE, fingerprint=memory.fingerprint, snapshot_id=snapshot
    )
    Space.objects.filter(pk=world.space.pk).update(current_release=world.release)
    form = {"name": "Here", "account": "one", "pauses": "on", "api_key": SECRET}
    admin.post(url("edit-backend", memory.pk), form)
    page = admin.get(url("confirm-backend", memory.pk)).content.decode()
    assert "the same account" in page
    assert "Releases go on serving" in page
    assert "fall silent" not in page
    assert SECRET not in page
    admin.post(url("confirm-backend", memory.pk))
    world.release.refresh_from_db()
    assert world.release.usable_on(Backend.objects.get(pk=memory.pk))


def test_what_lives_in_the_old_account_can_be_ended_and_what_is_left_is_shown(
    admin: Client, memory: Backend, world: World, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    handed_on: list[str] = []
    monkeypatch.setattr(tasks.clean_account, "delay", handed_on.append)
    account = memory_backend.account("one")
    tags = {"skillyard_tenant": memory.tenant_id, "skillyard_backend": memory.pk}
    box = _box(account, tags)
    Release.objects.update(
        state=ReleaseState.ACTIVE, fingerprint=memory.fingerprint, snapshot_id=_snapshot(account)
    )
    form = {"name": "Here", "account": "two", "api_key": SECRET, "pauses": "on"}
    admin.post(url("edit-backend", memory.pk), form)
    refused = admin.post(url("confirm-backend", memory.pk))
    assert refused.status_code == 409
    assert 'name="end"' in refused.content.decode()
    assert admin.post(url("confirm-backend", memory.pk), {"end": "1"}).status_code == 302
    assert box not in account.sandboxes
    page = admin.get(url("backend", memory.pk)).content.decode()
    former = memory.former_accounts.exclude(pk=world.former.pk).get()
    assert former.fingerprint[:16] in page
    assert url("give-up-account", memory.pk, former.pk) in page
    admin.post(url("give-up-account", memory.pk, former.pk))
    former.refresh_from_db()
    assert former.finished_at is not None
    assert (
        url("give-up-account", memory.pk, former.pk)
        not in admin.get(url("backend", memory.pk)).content.decode()
    )


def _box(account: SimulatedProvider, tags: dict[str, str]) -> str:
    request = CreateRequest(
        template="base", network=CLOSED, timeout=TimeoutPolicy(timeout_s=600), metadata=tags
    )
    return async_to_sync(account.client().create)(request).id


def _snapshot(account: SimulatedProvider) -> str:
    taken = async_to_sync(account.client().snapshots.create)(_box(account, {}), name="planned")
    return taken.id


def test_deleting_names_what_needs_it(admin: Client, memory: Backend) -> None:
    answer = admin.post(url("delete-backend", memory.pk), {"force": "1"})
    assert answer.status_code == 409
    assert "Lab" in answer.content.decode()
    spare = Backend.objects.create(
        tenant_id=memory.tenant_id, name="Spare", provider="memory", settings={"account": "x"}
    )
    admin.post(url("delete-backend", spare.pk))
    assert not Backend.objects.filter(pk=spare.pk).exists()


def test_a_verification_is_asked_for_and_its_report_read(
    admin: Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks.run_verification, "delay", lambda pk: None)
    answer = admin.post(url("verify-backend", world.backend.pk), {"template": "base"})
    row = Verification.objects.latest("pk")
    assert answer.headers["Location"] == url("verification", row.pk)
    assert "hx-get" in admin.get(url("verification", row.pk)).content.decode()
    row.points = [
        {
            "number": 1,
            "name": "pause",
            "title": "Pausing keeps things",
            "outcome": "failed",
            "evidence": ["<b>seen</b>"],
            "reason": "It was lost.",
            "expected": False,
            "took_s": 1.5,
        },
        {
            "number": 2,
            "name": "network",
            "title": "Switches",
            "outcome": "skipped",
            "evidence": [],
            "reason": "No switch.",
            "expected": True,
            "took_s": 0.0,
        },
    ]
    row.state, row.finished_at = VerificationState.FAILED, timezone.now()
    row.save()
    page = admin.get(url("verification", row.pk)).content.decode()
    for text in ("It was lost.", "not claimed", "&lt;b&gt;seen", "Pausing keeps things"):
        assert text in page
    assert "hx-get" not in page


def test_images_are_listed_apart_and_protected(
    admin: Client, memory: Backend, world: World
) -> None:
    account = memory_backend.account("one")
    account.templates["spare"] = account.clock()
    page = admin.get(url("backend-images", memory.pk)).content.decode()
    assert 'value="spare"' in page
    assert page.count(url("delete-template", memory.pk)) == 1, "spaces start from the other"
    admin.post(url("delete-template", memory.pk), {"template": "base"})
    assert "base" in account.templates
    admin.post(url("delete-template", memory.pk), {"template": "spare"})
    assert "spare" not in account.templates


def test_11_a_template_that_releases_stand_on_is_not_deleted(
    admin: Client, memory: Backend, world: World
) -> None:
    account = memory_backend.account("one")
    account.templates["old"] = account.clock()
    Release.objects.update(state=ReleaseState.ACTIVE, template_id="old")
    admin.post(url("delete-template", memory.pk), {"template": "old"})
    assert "old" in account.templates
    Release.objects.update(state=ReleaseState.DELETED)
    admin.post(url("delete-template", memory.pk), {"template": "old"})
    assert "old" not in account.templates


def test_a_missing_template_is_built_from_the_page(
    admin: Client, memory: Backend, world: World
) -> None:
    account = memory_backend.account("one")
    account.templates.clear()
    account.builds_take_time = True
    page = admin.get(url("backend-images", memory.pk)).content.decode()
    assert "There is no template called “base”" in page
    assert ">Build<" in page
    assert "hx-trigger" not in page
    admin.post(url("build-template", memory.pk), {"template": "base"})
    line = AuditEntry.objects.get(action="template.build")
    assert (line.target, line.details["rebuild"]) == ("base", False)
    account.building["base"] = 0.4
    part = admin.get(url("backend-images", memory.pk), headers={"HX-Request": "true"})
    assert 'value="0.4"' in part.content.decode()
    assert "hx-trigger" in part.content.decode()
    assert "<html" not in part.content.decode()
    del account.building["base"]
    account.templates["base"] = account.clock()
    page = admin.get(url("backend-images", memory.pk)).content.decode()
    assert ">Rebuild<" in page
    assert "hx-trigger" not in page


def test_where_templates_are_made_elsewhere_there_is_no_button(
    admin: Client, memory: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere(memory_backend.Client):
        def __init__(self, account: SimulatedProvider, settings: memory_backend.Settings) -> None:
            super().__init__(account, settings)
            notes = {"template_builds": "They are made in the shop."}
            self.capabilities = replace(self.capabilities, template_builds=False, notes=notes)

    monkeypatch.setattr(memory_backend, "Client", Elsewhere)
    page = admin.get(url("backend-images", memory.pk)).content.decode()
    assert "They are made in the shop." in page
    assert url("build-template", memory.pk) not in page


def test_a_dead_backend_still_has_its_pages(admin: Client, world: World) -> None:
    page = admin.get(url("backend-images", world.backend.pk))
    assert page.status_code == 200
    assert "notice bad" in page.content.decode()
