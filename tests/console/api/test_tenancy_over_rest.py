"""Tenants, spaces and the audit log over REST."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import Client

from console.api.authentication import forget_keys
from console.audit.models import AuditEntry
from console.fleet import tasks
from console.fleet.models import Session, SessionState
from console.tenants.access import PLATFORM, Action
from console.tenants.models import ApiKey, Membership, Space, Tenant, User
from tests.console.api.conftest import IssueKey
from tests.console.api.test_manners import Caller, kind
from tests.console.cast import World


@pytest.fixture
def call(world: World, make_key: IssueKey) -> Caller:
    return Caller(make_key(world.tenant, list(Action)))


@pytest.fixture
def platform(world: World, make_key: IssueKey) -> Caller:
    return Caller(make_key(world.tenant, [PLATFORM]))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(tasks.remove_space, "delay", found.append)
    return found


def lines_of(response: Any) -> list[bytes]:
    async def collect() -> bytes:
        return b"".join([chunk async for chunk in response.streaming_content])

    return async_to_sync(collect)().splitlines()


class TestTenants:
    def test_only_the_platform_makes_one_and_hands_it_over(
        self, call: Caller, platform: Caller
    ) -> None:
        body = {
            "slug": "new",
            "name": "New",
            "admin": {"username": "ada", "password": "correct horse battery"},
        }
        refused = call("POST", "/tenants", body)
        assert (refused.status_code, kind(refused)) == (403, "forbidden")
        made = platform("POST", "/tenants", body)
        assert made.status_code == 201, made.content
        tenant = made.json()["data"]["id"]
        assert Membership.objects.get(tenant=tenant).user.get_username() == "ada"
        issued = platform(
            "POST", f"/tenants/{tenant}/api-keys", {"name": "first", "scopes": ["view", "manage"]}
        )
        theirs = Caller(issued.json()["data"]["secret"])
        listed = theirs("GET", "/tenants").json()["data"]
        assert [row["id"] for row in listed] == [tenant]
        assert theirs("PATCH", f"/tenants/{tenant}", {"name": "Newer"}).status_code == 200
        assert Tenant.objects.get(pk=tenant).name == "Newer"
        assert call("PATCH", f"/tenants/{tenant}", {"name": "Mine"}).status_code == 404

    @pytest.mark.parametrize(
        "body",
        [
            {"slug": "acme", "name": "Taken"},
            {"slug": "Bad Slug", "name": "N"},
            {"slug": "new", "name": ""},
            {"slug": "new", "name": "N", "admin": {"username": "ada", "password": "short"}},
            {"slug": "new", "name": "N", "admin": {"username": "", "password": "x"}},
        ],
    )
    def test_what_is_wrong_makes_nothing(self, platform: Caller, body: dict[str, Any]) -> None:
        before = Tenant.objects.count(), User.objects.count()
        assert platform("POST", "/tenants", body).status_code in (400, 422)
        assert (Tenant.objects.count(), User.objects.count()) == before

    def test_nobody_but_the_platform_grants_its_scope(
        self, world: World, call: Caller, platform: Caller
    ) -> None:
        path, body = f"/tenants/{world.tenant.pk}/api-keys", {"name": "k", "scopes": [PLATFORM]}
        assert call("POST", path, body).status_code == 403
        in_space = {**body, "space_id": world.space.pk}
        assert kind(platform("POST", path, in_space)) == "invalid_request"
        assert platform("POST", path, body).status_code == 201

    def test_a_platforms_admin_may_do_it_in_a_browser(self, world: World) -> None:
        browser = Client(enforce_csrf_checks=True)
        browser.force_login(User.objects.create_superuser("root"))
        browser.get("/me/")
        answer = browser.post(
            "/api/v1/tenants",
            json.dumps({"slug": "new", "name": "New"}),
            content_type="application/json",
            headers={"X-CSRFToken": browser.cookies["csrftoken"].value},
        )
        assert answer.status_code == 201, answer.content


class TestDeletingASpace:
    def test_it_is_refused_with_what_would_go(
        self, world: World, call: Caller, asked: list[str]
    ) -> None:
        path = f"/spaces/{world.space.pk}"
        for query in ("", "?confirm=Lab", "?confirm="):
            refused = call("DELETE", path + query)
            assert (refused.status_code, kind(refused)) == (409, "conflict")
            going = refused.json()["error"]["details"]["consequences"]
            assert (going["live_sessions"], going["releases"]) == (1, 1)
        assert asked == []
        assert call("GET", path).json()["data"]["delete_requested_at"] is None

    def test_from_then_on_nothing_new_happens_in_it(
        self,
        world: World,
        call: Caller,
        make_key: IssueKey,
        asked: list[str],
        django_capture_on_commit_callbacks: Any,
    ) -> None:
        path = f"/spaces/{world.space.pk}"
        of_space = Caller(make_key(world.tenant, ["view", "run"], world.space))
        assert of_space("GET", path).status_code == 200
        with django_capture_on_commit_callbacks(execute=True):
            gone = call("DELETE", f"{path}?confirm=lab")
        assert gone.status_code == 202, gone.content
        assert gone.json()["data"]["delete_requested_at"]
        assert asked == [world.space.pk]

        forget_keys()
        assert of_space("GET", path).status_code == 401, "its keys are revoked"
        assert call("GET", path).status_code == 200, "it is seen until it is gone"
        for method, below in [
            ("PATCH", ""),
            ("POST", "/sessions/s/resolve"),
            ("POST", "/builds"),
            ("PUT", "/network-policy"),
        ]:
            refused = call(method, path + below, {})
            assert (refused.status_code, kind(refused)) == (409, "conflict"), below
        assert call("DELETE", path).status_code == 202, "asked again it is as it was"
        assert ApiKey.objects.filter(space=world.space, revoked_at=None).count() == 0

    def test_an_empty_one_needs_no_name(self, world: World, call: Caller, asked: list[str]) -> None:
        body = {
            "tenant_id": world.tenant.pk,
            "backend_id": world.backend.pk,
            "slug": "empty",
            "name": "Empty",
        }
        made = call("POST", "/spaces", body).json()["data"]["id"]
        assert call("DELETE", f"/spaces/{made}").status_code == 202

    def test_it_takes_a_right_in_the_whole_tenant(
        self, world: World, make_key: IssueKey, asked: list[str]
    ) -> None:
        local = Caller(make_key(world.tenant, list(Action), world.space))
        answer = local("DELETE", f"/spaces/{world.space.pk}?confirm=lab")
        assert (answer.status_code, kind(answer)) == (403, "forbidden")
        assert Space.objects.get(pk=world.space.pk).delete_requested_at is None


def test_whoever_runs_a_session_may_end_it(world: World, make_key: IssueKey) -> None:
    runs = Caller(make_key(world.tenant, ["view", "run"], world.space))
    sees = Caller(make_key(world.tenant, ["view", "operate"], world.space))
    path = f"/spaces/{world.space.pk}/sessions/{world.session.session_id}"

    assert sees("DELETE", path).status_code == 403
    assert runs("DELETE", path).status_code == 503, "allowed; there is no Redis here"
    assert Session.objects.get(pk=world.session.pk).state == SessionState.ACTIVE


class TestAudit:
    def test_the_export_is_the_list_line_by_line(self, world: World, call: Caller) -> None:
        call("PATCH", f"/tenants/{world.tenant.pk}", {"name": "Renamed"})
        listed = call("GET", "/audit").json()["data"]
        exported = call("GET", "/audit/export")
        lines = [json.loads(line) for line in lines_of(exported)]

        assert lines == list(reversed(listed))
        only = lines_of(call("GET", "/audit/export?action=tenant.rename"))
        assert [json.loads(line)["action"] for line in only] == ["tenant.rename"]
        assert kind(call("GET", "/audit/export?since=yesterday")) == "validation"

    def test_another_tenants_entries_are_in_neither(
        self, world: World, other_world: World, make_key: IssueKey
    ) -> None:
        stranger = Caller(make_key(other_world.tenant, ["view", "audit"]))
        text = str(lines_of(stranger("GET", "/audit/export")))
        assert other_world.tenant.pk in text
        assert world.tenant.pk not in text
        verified = stranger("GET", "/audit/verify").json()["data"]
        assert [row["tenant_id"] for row in verified] == [other_world.tenant.pk]
        blind = Caller(make_key(other_world.tenant, ["view"]))
        assert blind("GET", "/audit/verify").json()["data"] == []
        assert lines_of(blind("GET", "/audit/export")) == []

    def test_tampering_shows(self, world: World, call: Caller) -> None:
        (whole,) = call("GET", "/audit/verify").json()["data"]
        assert (whole["broken_at"], whole["reason"]) == (None, "")
        AuditEntry.objects.filter(tenant=world.tenant, number=2).update(actor="nobody")
        (broken,) = call("GET", "/audit/verify").json()["data"]
        assert (broken["entries"], broken["broken_at"]) == (1, 2)
        assert "changed" in broken["reason"]
