"""Backends over REST: changed, rotated, cordoned and deleted as safely as on their pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from console.audit.models import AuditEntry
from console.fleet import tasks
from console.fleet.models import Backend, ReconcileReport, Verification
from console.tenants.access import Action
from console.tenants.models import Space
from sandboxes.errors import Authentication, Unavailable
from sandboxes.network import NetworkPolicy
from sandboxes.registry import PROVIDERS, Provider
from sandboxes.testing.simulated import SimulatedProvider
from sandboxes.types import CreateRequest, TimeoutPolicy
from tests.console.api.conftest import IssueKey
from tests.console.api.test_manners import Caller, kind
from tests.console.cast import World
from tests.console.fleet import memory_backend


@pytest.fixture
def backend(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    monkeypatch.setitem(
        PROVIDERS,
        memory_backend.PROVIDER,
        Provider(memory_backend.PROVIDER, "Memory", "tests.console.fleet.memory_backend"),
    )
    yield Backend.objects.create(
        tenant=world.tenant,
        name="Memory",
        provider=memory_backend.PROVIDER,
        settings={"account": "one"},
        secrets={"token": "old-secret"},
    )
    memory_backend.ACCOUNTS.clear()


@pytest.fixture
def account(backend: Backend) -> SimulatedProvider:
    return memory_backend.account("one")


@pytest.fixture
def call(world: World, make_key: IssueKey) -> Caller:
    return Caller(make_key(world.tenant, list(Action)))


@pytest.fixture
def path(backend: Backend) -> str:
    return f"/tenants/{backend.tenant_id}/backends/{backend.pk}"


def live_in(account: SimulatedProvider, backend: Backend) -> str:
    request = CreateRequest(
        template="base",
        network=NetworkPolicy(outbound=True, inbound=False),
        timeout=TimeoutPolicy(timeout_s=3600),
        metadata={
            "skillyard_tenant": backend.tenant_id,
            "skillyard_backend": backend.pk,
            "skillyard_space": "spc_x",
            "skillyard_session": "talk",
        },
    )
    return account.start(request).id


def test_what_was_read_can_be_sent_back_and_keeps_the_secret(
    backend: Backend, call: Caller, path: str
) -> None:
    read = call("GET", path).json()["data"]
    assert read["settings"]["token"] == "***"
    assert read["secrets_set"] == ["token"]
    sent = call("PATCH", path, {"name": "Renamed", "settings": read["settings"]})

    assert sent.status_code == 200, sent.content
    assert sent.json()["data"]["name"] == "Renamed"
    backend.refresh_from_db()
    assert backend.secrets == {"token": "old-secret"}
    assert call("PATCH", path, {"settings": {"token": None}}).json()["data"]["secrets_set"] == []
    assert b"old-secret" not in sent.content
    assert kind(call("PATCH", path, {"settings": {"nonsense": 1}})) == "invalid_request"
    assert kind(call("PATCH", path, {"settings": {"account": None}})) == "invalid_request"


def test_a_change_of_account_is_shown_first_and_refused_while_sandboxes_live(
    backend: Backend, account: SimulatedProvider, call: Caller, path: str
) -> None:
    box = live_in(account, backend)
    elsewhere = {"settings": {"account": "two"}}

    shown = call("POST", f"{path}/preview", elsewhere).json()["data"]
    assert shown["identity"] == ["Account"]
    refused = call("PATCH", path, elsewhere)
    assert (refused.status_code, kind(refused)) == (409, "conflict")
    details = refused.json()["error"]["details"]
    assert [item["sandbox_id"] for item in details["inventory"]["live"]] == [box]
    assert details["may_force"] is False
    assert call("PATCH", path, {**elsewhere, "force": True}).status_code == 409
    assert call("GET", f"{path}/inventory").json()["data"]["live"][0]["session"] == "talk"
    account.vanish(box)
    assert call("PATCH", path, elsewhere).status_code == 200


def test_what_cannot_be_asked_may_be_forced(
    account: SimulatedProvider, call: Caller, path: str
) -> None:
    elsewhere = {"settings": {"account": "two"}}
    account.fail_next("list", Unavailable("The provider is away; wait for it."))
    refused = call("PATCH", path, elsewhere)
    assert refused.json()["error"]["details"]["may_force"] is True
    account.fail_next("list", Unavailable("The provider is away; wait for it."))
    assert call("PATCH", path, {**elsewhere, "force": True}).status_code == 200


def test_new_credentials_are_tried_before_they_are_stored(
    backend: Backend, account: SimulatedProvider, call: Caller, path: str
) -> None:
    account.fail_next("health", Authentication("The key is unknown."))
    refused = call("POST", f"{path}/credentials", {"secrets": {"token": "wrong"}})
    assert (refused.status_code, kind(refused)) == (400, "invalid_request")
    assert "nothing was changed" in refused.json()["error"]["message"]
    account.fail_next("health", Unavailable("The provider is away; wait for it."))
    assert call("POST", f"{path}/credentials", {"secrets": {"token": "new"}}).status_code == 503
    backend.refresh_from_db()
    assert backend.secrets == {"token": "old-secret"}

    assert call("POST", f"{path}/credentials", {"secrets": {"token": "new"}}).status_code == 200
    backend.refresh_from_db()
    assert backend.secrets == {"token": "new"}
    assert kind(call("POST", f"{path}/credentials", {"secrets": {"account": "x"}}))
    assert call("POST", f"{path}/credentials", {"secrets": {}}).status_code == 422
    told = AuditEntry.objects.filter(action="backend.update").latest("id")
    assert told.details["changed"] == ["token"]
    assert "new" not in str(told.details["changed"])


def test_a_cordon_keeps_new_sandboxes_off_until_it_is_lifted(
    world: World, backend: Backend, call: Caller, path: str
) -> None:
    cordoned = call("PUT", f"{path}/cordon", {"reason": "The host is moved."}).json()["data"]
    assert (cordoned["cordoned"], cordoned["cordon_reason"]) == (True, "The host is moved.")
    backend.refresh_from_db()
    with pytest.raises(Exception, match="The host is moved"):
        backend.require_open()
    again = call("PUT", f"{path}/cordon", {"reason": "The host is moved."}).json()["data"]
    assert again["cordoned_at"] == cordoned["cordoned_at"]
    for _ in range(2):
        assert call("DELETE", f"{path}/cordon").json()["data"]["cordoned"] is False
    backend.refresh_from_db()
    backend.require_open()
    actions = AuditEntry.objects.filter(action__contains="cordon").order_by("id")
    assert [row.action for row in actions] == ["backend.cordon", "backend.uncordon"]


def test_a_backend_in_use_is_not_deleted(
    world: World, backend: Backend, account: SimulatedProvider, call: Caller, path: str
) -> None:
    used = call("DELETE", f"/tenants/{world.tenant.pk}/backends/{world.backend.pk}")
    assert (used.status_code, kind(used)) == (409, "conflict")
    assert used.json()["error"]["details"]["names"] == ["Lab"]
    box = live_in(account, backend)
    lived_on = call("DELETE", f"{path}?force=true")
    assert lived_on.json()["error"]["details"]["inventory"]["live"][0]["sandbox_id"] == box
    assert kind(call("DELETE", f"{path}?force=perhaps")) == "invalid_request"
    account.vanish(box)
    assert call("DELETE", path).status_code == 204
    assert call("GET", path).status_code == 404


def test_runs_are_queued_and_read(
    backend: Backend, call: Caller, path: str, monkeypatch: pytest.MonkeyPatch, db: Any
) -> None:
    asked: list[str] = []
    for task in (tasks.run_verification, tasks.run_reconcile):
        monkeypatch.setattr(task, "delay", asked.append)
    started = call("POST", f"{path}/verifications", {"template": "base"})
    assert started.status_code == 202
    verification = started.json()["data"]
    assert (verification["state"], verification["template"]) == ("queued", "base")
    report = call("POST", f"{path}/reconciles", {"dry_run": True}).json()["data"]

    listed = call("GET", f"{path}/verifications").json()["data"]
    assert [row["id"] for row in listed] == [verification["id"]]
    assert call("GET", f"{path}/verifications/{report['id']}").status_code == 404
    assert call("GET", f"{path}/reconciles/{report['id']}").json()["data"]["state"] == "queued"
    assert Verification.objects.count() == ReconcileReport.objects.filter(by_hand=True).count() + 1


def test_templates_are_listed_apart_from_snapshots_and_deleted_if_free(
    world: World, backend: Backend, account: SimulatedProvider, call: Caller, path: str
) -> None:
    account.templates["spare:v1"] = account.clock()
    found = call("GET", f"{path}/images").json()["data"]
    assert {item["id"] for item in found["templates"]} == {"base", "spare:v1"}
    assert found["snapshots"] == []
    one = f"{path}/templates/spare%3Av1"
    assert call("GET", one).json()["data"]["status"] == "ready"
    assert call("DELETE", one).status_code == 204
    assert "spare:v1" not in account.templates
    assert call("DELETE", one).status_code == 404
    Space.objects.filter(pk=world.space.pk).update(backend=backend)
    stands = call("DELETE", f"{path}/templates/base")
    assert (stands.status_code, kind(stands)) == (409, "conflict")
    assert "Lab" in stands.json()["error"]["message"]
