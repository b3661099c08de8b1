"""Adding, editing and deleting backends: secrets kept, identity changed only where nothing lives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone

from console.audit.models import AuditEntry
from console.audit.services import SYSTEM
from console.fleet import backends
from console.fleet.connection import MASK, Connection, fields_of, masked, read
from console.fleet.inventory import take_inventory
from console.fleet.models import Backend, Session, SessionState
from console.fleet.sessions import sandbox_plan, session_key
from console.tenants.models import Space, Tenant
from sandboxes.errors import Conflict, InvalidRequest, Unavailable
from sandboxes.fingerprint import fingerprint
from sandboxes.network import CLOSED
from sandboxes.sessions.keys import ownership_tags
from sandboxes.testing.simulated import SimulatedClient, SimulatedProvider
from sandboxes.types import CreateRequest, Sandbox, TimeoutPolicy
from sandboxes.urlguard import UrlRefused
from skills.models import Release, ReleaseState
from tests.console.fleet import memory_backend

VECTORS = [
    (
        "cube",
        "key-1",
        "https://203.0.113.10",
        "f340a11776646c15926faf30bf5a6ee41194973ef87f76f748c81bb9d0e88c96",
    ),
    (
        "e2b",
        "key-1",
        "https://e2b.example",
        "8e7b3565ec7a4f059da5bd3f582d13981e661baaecaf56aa62ac45ba1b97322a",
    ),
    (
        "docker",
        "",
        "local-daemon",
        "1121950f2cb6299df091d9b000bcb04fac50e576e983fd61977db14e3e679046",
    ),
    (
        "cube",
        "",
        "http://127.0.0.1:33000",
        "1c675c85baf4eb2a0c6cc6ed86e00d179c28da8363376eb5d213e9d6b5785d96",
    ),
]


@pytest.mark.parametrize(("provider", "key", "url", "expected"), VECTORS)
def test_fingerprints_are_those_that_others_store(
    provider: str, key: str, url: str, expected: str
) -> None:
    assert fingerprint(provider=provider, api_key=key, api_url=url) == expected
    assert fingerprint(provider=f" {provider}", api_key=f"{key} ", api_url=f"\t{url}\n") == expected
    if provider != "docker":
        row = Backend(provider=provider, settings={"api_url": url}, secrets={"api_key": key})
        assert row.fingerprint == expected
        assert Connection.of(row).fingerprint == expected


# Settings


def stored(**changes: Any) -> Backend:
    values = {
        "settings": {"api_url": "https://203.0.113.10", "proxy_url": "https://203.0.113.11"},
        "secrets": {"api_key": "kept-secret"},
        **changes,
    }
    return Backend(name="Cube", provider="cube", **values)


CUBE = {"api_url": "https://203.0.113.10", "proxy_url": "https://203.0.113.11"}


@pytest.mark.parametrize("given", ["", MASK])
def test_an_empty_or_masked_secret_keeps_the_stored_one(given: str) -> None:
    read_back = read("cube", {**CUBE, "api_key": given}, stored=stored())
    assert read_back.secrets == {"api_key": "kept-secret"}
    assert "api_key" not in read_back.settings


def test_a_new_secret_replaces_and_none_removes_it() -> None:
    assert read("cube", {**CUBE, "api_key": "new"}, stored=stored()).secrets == {"api_key": "new"}
    assert read("cube", {**CUBE, "api_key": None}, stored=stored()).secrets == {}
    assert read("cube", {**CUBE, "api_key": MASK}).secrets == {}


def test_every_bad_setting_is_named() -> None:
    with pytest.raises(InvalidRequest) as caught:
        read("cube", {"http_timeout_s": 0, "allow_private": "yes"})
    for label in ("API URL", "Proxy URL", "Time limit of a call", "Allow private addresses"):
        assert label in str(caught.value)
    with pytest.raises(InvalidRequest, match="apikey"):
        read("cube", {**CUBE, "apikey": "x"})


def test_what_is_shown_has_no_secret() -> None:
    shown = masked(stored())
    assert shown["api_key"] == MASK
    assert masked(stored(secrets={}))["api_key"] == ""
    assert "kept-secret" not in str(shown)


@pytest.mark.parametrize("provider", ["local", "docker", "e2b", "cube"])
def test_each_provider_describes_its_settings(provider: str) -> None:
    for field in fields_of(provider):
        assert field.label
        assert field.kind in (str, bool, int, float)


def test_which_changes_are_of_the_identity() -> None:
    old = Connection.of(stored())

    def changed(**values: Any) -> list[str]:
        return old.identity_changes(
            read("cube", {**CUBE, "api_key": MASK, **values}, stored=stored())
        )

    assert changed() == []
    assert changed(template="other", http_timeout_s=9.0, dns_servers="203.0.113.53") == []
    assert changed(api_key="other") == ["API key"]
    assert changed(api_url="https://203.0.113.20") == ["API URL"]
    assert changed(proxy_url="https://203.0.113.20") == ["Proxy URL"]
    assert changed(sandbox_domain="x.example") == ["Sandbox domain"]
    assert changed(allow_private=True) == ["Allow private addresses"]
    assert changed(sandbox_domain="cube.app", allow_private=False) == []


# Saving


@pytest.mark.django_db
def test_addresses_are_judged_when_saved() -> None:
    tenant = Tenant.objects.create(slug="t", name="T")
    add = async_to_sync(backends.add_backend)
    for url in (
        "http://169.254.169.254",
        "http://127.0.0.1:3000",
        "http://localhost",
        "http://10.0.0.1",
    ):
        with pytest.raises(UrlRefused):
            add(
                tenant=tenant,
                name="C",
                provider="cube",
                values={**CUBE, "proxy_url": url},
                actor=SYSTEM,
            )
    assert not Backend.objects.exists()
    for url in ("http://169.254.169.254", "http://10.0.0.1:8080", "tcp://10.0.0.1:2376"):
        with pytest.raises(UrlRefused):
            add(tenant=tenant, name="D", provider="docker", values={"url": url}, actor=SYSTEM)
    with pytest.raises(UrlRefused, match="never called"):
        add(
            tenant=tenant,
            name="D",
            provider="docker",
            values={"url": "http://169.254.169.254", "allow_private": True},
            actor=SYSTEM,
        )
    private = {**CUBE, "proxy_url": "http://10.0.0.1", "allow_private": True, "api_key": "s3cret"}
    made = add(tenant=tenant, name="C", provider="cube", values=private, actor=SYSTEM)
    assert made.secrets == {"api_key": "s3cret"}
    assert "s3cret" not in str(AuditEntry.objects.values_list("details", flat=True))
    with pytest.raises(InvalidRequest, match="already"):
        add(tenant=tenant, name="C", provider="cube", values=private, actor=SYSTEM)


@dataclass
class Editor:
    space: Space

    @property
    def backend(self) -> Backend:
        return Backend.objects.get(pk=self.space.backend_id)

    def edit(self, *, force: bool = False, name: str = "Here", **values: Any) -> Backend:
        connection = read(memory_backend.PROVIDER, values, stored=self.backend)
        return async_to_sync(backends.edit_backend)(
            backend=self.backend, name=name, connection=connection, actor=SYSTEM, force=force
        )

    def box(self, account: SimulatedProvider, **tags: str) -> Sandbox:
        key = session_key(self.space, "talk")

        async def make() -> Sandbox:
            return await SimulatedClient(account).create(
                CreateRequest(
                    template="base",
                    network=CLOSED,
                    timeout=TimeoutPolicy(timeout_s=600),
                    metadata={**ownership_tags(key, self.space.backend_id), **tags},
                )
            )

        return async_to_sync(make)()


pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def editor(space: Space) -> Editor:
    return Editor(space)


def test_other_settings_change_at_any_time(editor: Editor, account: SimulatedProvider) -> None:
    editor.box(account)
    assert editor.edit(account="one", pauses=False, name="There").name == "There"
    assert editor.backend.settings == {"account": "one", "pauses": False}


def test_identity_is_refused_while_something_lives(
    editor: Editor, account: SimulatedProvider
) -> None:
    box = editor.box(account)
    for force in (False, True):
        with pytest.raises(backends.SandboxesStillLive) as caught:
            editor.edit(account="two", force=force)
        assert [item.sandbox_id for item in caught.value.inventory.live] == [box.id]
        assert caught.value.inventory.live[0].session == "talk"
        assert caught.value.status == 409
    assert editor.backend.settings == {"account": "one"}
    assert not editor.backend.changing
    async_to_sync(SimulatedClient(account).delete)(box.id)
    assert editor.edit(account="two").settings == {"account": "two"}
    assert not editor.backend.changing


def test_a_sandbox_that_lost_its_tags_still_lives(
    editor: Editor, account: SimulatedProvider
) -> None:
    box = editor.box(account)
    Session.objects.create(
        space=editor.space, session_id="talk", backend=editor.backend, sandbox_id=box.id
    )
    bare = account.sandboxes[box.id]
    bare.info = replace(bare.info, metadata={})
    with pytest.raises(backends.SandboxesStillLive) as caught:
        editor.edit(account="two")
    assert [item.sandbox_id for item in caught.value.inventory.live] == [box.id]


def test_another_backends_sandboxes_do_not_count(
    editor: Editor, account: SimulatedProvider
) -> None:
    editor.box(account, skillyard_backend="bkd-other")
    editor.box(account, skillyard_tenant="another")
    assert async_to_sync(take_inventory)(editor.backend).live == []
    editor.edit(account="two")


def test_an_account_that_cannot_be_asked_needs_force(
    editor: Editor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dead(settings: object) -> None:
        raise Unavailable("It is down.")

    monkeypatch.setattr(memory_backend, "open_client", dead)
    with pytest.raises(backends.InventoryUnverifiable, match="It is down"):
        editor.edit(account="two")
    assert editor.edit(account="two", force=True).settings == {"account": "two"}
    entry = AuditEntry.objects.filter(action="backend.update").latest("pk")
    assert entry.details["unverifiable"] == "It is down."


def test_a_second_change_is_told_to_wait_and_sessions_get_nothing_new(editor: Editor) -> None:
    Backend.objects.update(cordoned_until=timezone.now() + timedelta(minutes=1))
    with pytest.raises(backends.BackendCordoned) as caught:
        editor.edit(account="two")
    assert (caught.value.status, caught.value.kind) == (423, "conflict")
    with pytest.raises(Conflict, match="being changed"):
        async_to_sync(sandbox_plan)(session_key(editor.space, "talk"), pause_on_idle=True)
    Backend.objects.update(cordoned_until=timezone.now() - timedelta(seconds=1))
    assert editor.edit(account="two").settings == {"account": "two"}


def test_a_refused_edit_changes_nothing(editor: Editor) -> None:
    Backend.objects.create(
        tenant=editor.backend.tenant, name="Taken", provider="memory", settings={"account": "x"}
    )
    with pytest.raises(InvalidRequest, match="already"):
        editor.edit(account="two", name="Taken")
    assert editor.backend.settings == {"account": "one"}
    assert not editor.backend.changing


# Rotation


def release(editor: Editor, generation: int, fingerprint: str, **values: Any) -> Release:
    return Release.objects.create(
        space=editor.space,
        generation=generation,
        backend=editor.backend,
        fingerprint=fingerprint,
        planned_name=f"planned-{generation}",
        snapshot_id=f"snap-{generation}",
        **{"state": ReleaseState.ACTIVE, **values},
    )


def test_a_preview_names_what_falls_silent_and_who_falls_back(editor: Editor) -> None:
    now = editor.backend.fingerprint
    new = read(
        "memory", {"account": "one", "api_url": "https://new.example"}, stored=editor.backend
    )
    serving = release(editor, 1, now)
    old = release(editor, 2, now, state=ReleaseState.SUPERSEDED)
    release(editor, 3, now, state=ReleaseState.DELETED)
    back = release(editor, 4, new.fingerprint, state=ReleaseState.SUPERSEDED)
    Space.objects.filter(pk=editor.space.pk).update(current_release=serving)
    for number, state in enumerate((SessionState.ACTIVE, SessionState.PAUSED, SessionState.LOST)):
        Session.objects.create(
            space=editor.space, session_id=f"s{number}", backend=editor.backend, state=state
        )
    change = backends.preview_change(editor.backend, new)
    assert change.identity == ["Address"]
    assert change.moves_account
    assert {row.pk for row in change.silent} == {serving.pk, old.pk}
    assert [row.pk for row in change.heard] == [back.pk]
    assert [row.pk for row in change.spaces] == [editor.space.pk]
    assert change.sessions == 2
    assert backends.silent_releases(editor.backend) == []
    Session.objects.update(sandbox_id="")
    editor.edit(account="one", api_url="https://new.example")
    assert backends.silent_releases(editor.backend) == [serving]


def test_a_move_within_the_account_silences_nothing(editor: Editor) -> None:
    release(editor, 1, editor.backend.fingerprint)
    new = read("memory", {"account": "two"}, stored=editor.backend)
    change = backends.preview_change(editor.backend, new)
    assert change.identity == ["Account"]
    assert not change.moves_account
    assert change.silent == []


# Deleting


def test_deleting_is_refused_while_anything_needs_it(
    editor: Editor, account: SimulatedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = async_to_sync(backends.delete_backend)
    with pytest.raises(backends.BackendInUse, match="Lab"):
        delete(backend=editor.backend, actor=SYSTEM, force=True)
    spare = Backend.objects.create(
        tenant=editor.backend.tenant, name="Spare", provider="memory", settings={"account": "one"}
    )
    old = editor.backend
    kept = release(editor, 1, old.fingerprint)
    gone = release(editor, 2, old.fingerprint, state=ReleaseState.DELETED)
    talk = Session.objects.create(
        space=editor.space, session_id="x", backend=old, state=SessionState.DESTROYED
    )
    Space.objects.filter(pk=editor.space.pk).update(backend=spare)
    with pytest.raises(backends.BackendInUse) as caught:
        delete(backend=old, actor=SYSTEM, force=True)
    assert caught.value.names == [f"{editor.space} 1"]
    kept.delete()
    box = editor.box(account, skillyard_backend=old.pk)
    with pytest.raises(backends.SandboxesStillLive):
        delete(backend=old, actor=SYSTEM, force=True)
    async_to_sync(SimulatedClient(account).delete)(box.id)

    async def dead(settings: object) -> None:
        raise Unavailable("It is down.")

    with monkeypatch.context() as patch:
        patch.setattr(memory_backend, "open_client", dead)
        with pytest.raises(backends.InventoryUnverifiable):
            delete(backend=old, actor=SYSTEM)
    delete(backend=old, actor=SYSTEM)
    assert not Backend.objects.filter(pk=old.pk).exists()
    assert not Release.objects.filter(pk=gone.pk).exists()
    talk.refresh_from_db()
    assert talk.backend_id == spare.pk
