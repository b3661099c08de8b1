"""Envelope, credentials, pages, ETags, idempotency and limits."""

from __future__ import annotations

import gzip
import io
import json
import time
import zipfile
from typing import Any

import httpx
import pytest
from django.test import Client

from console.api.authentication import forget_keys
from console.audit.models import AuditEntry
from console.tenants.access import Action
from console.tenants.keys import revoke_key
from console.tenants.models import ApiKey, Membership
from tests.console.api.conftest import IssueKey
from tests.console.api.server import Server
from tests.console.api.world import grants_everything
from tests.console.cast import World

EVERYTHING = list(Action)


class Caller:
    """A test client with a key that gives and takes JSON."""

    def __init__(self, key: str) -> None:
        self.client = Client(headers={"X-API-Key": key})

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        data = b"" if body is None else json.dumps(body).encode()
        return self.client.generic(
            method, f"/api/v1{path}", data=data, content_type="application/json", headers=named
        )


@pytest.fixture
def call(world: World, make_key: IssueKey) -> Caller:
    return Caller(make_key(world.tenant, EVERYTHING))


def kind(response: Any) -> str:
    body = response.json()
    assert body["success"] is False
    assert set(body["error"]) == {"code", "kind", "message", "details"}
    return str(body["error"]["kind"])


def test_a_key_works_in_either_header(world: World, make_key: IssueKey, client: Client) -> None:
    key = make_key(world.tenant, ["view"])

    assert client.get("/api/v1/me", headers={"X-API-Key": key}).status_code == 200
    mine = client.get("/api/v1/me", headers={"Authorization": f"Bearer {key}"}).json()["data"]
    assert mine["grants"] == [{"tenant_id": world.tenant.pk, "space_id": None, "rights": ["view"]}]
    refused = client.get("/api/v1/me", headers={"Authorization": f"Basic {key}"})
    assert (refused.status_code, kind(refused)) == (401, "unauthenticated")
    assert "Bearer" in refused.headers["WWW-Authenticate"]


def test_a_revoked_key_is_refused_once_it_is_asked_again(world: World, make_key: IssueKey) -> None:
    call = Caller(make_key(world.tenant, ["view"]))
    assert call("GET", "/me").status_code == 200
    revoke_key(principal=grants_everything(_actor()), key=ApiKey.objects.latest("id"))

    assert call("GET", "/me").status_code == 200, "it is remembered for a few seconds"
    forget_keys()
    assert call("GET", "/me").status_code == 401


def _actor() -> Any:
    from console.audit.services import SYSTEM

    return SYSTEM


def test_a_remembered_key_and_space_cost_no_query(
    world: World, call: Caller, django_assert_num_queries: Any
) -> None:
    call("POST", f"/spaces/{world.space.pk}/sessions/s/turns")

    with django_assert_num_queries(0):
        answer = call("POST", f"/spaces/{world.space.pk}/sessions/s/turns")
    assert kind(answer) == "unavailable", "there is no Redis here"
    assert int(answer.headers["Retry-After"]) >= 1


def test_a_browser_may_read_and_needs_the_csrf_token_to_write(world: World) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(world.people["admin"])
    address = f"/api/v1/tenants/{world.tenant.pk}/api-keys/{world.key.pk}"

    assert browser.get(address).status_code == 200
    refused = browser.delete(address)
    assert (refused.status_code, kind(refused)) == (403, "forbidden")
    browser.get("/me/")
    token = browser.cookies["csrftoken"].value
    assert browser.delete(address, headers={"X-CSRFToken": token}).status_code == 200


def test_refused_access_is_in_the_askers_audit_log(
    world: World, other_world: World, make_key: IssueKey
) -> None:
    call = Caller(make_key(world.tenant, ["view"]))
    call("GET", f"/spaces/{other_world.space.pk}")
    call("PUT", f"/spaces/{world.space.pk}/network-policy", {"outbound": True, "inbound": True})

    rows = AuditEntry.objects.filter(action="access.denied").order_by("id")
    assert [(row.tenant_id, row.outcome, row.details["status"]) for row in rows] == [
        (world.tenant.pk, "denied", 404),
        (world.tenant.pk, "denied", 403),
    ]


@pytest.mark.parametrize(
    ("body", "media", "status", "expected"),
    [
        (b"{", "application/json", 400, "invalid_request"),
        (b'{"a": NaN}', "application/json", 400, "invalid_request"),
        (b'"\\ud800"', "application/json", 400, "invalid_request"),
        (b"[" * 100_000, "application/json", 400, "invalid_request"),
        (b"\xff\xfe", "application/json", 400, "invalid_request"),
        (b"{}", "text/plain", 415, "unsupported_media_type"),
        (b"[]", "application/json", 422, "validation"),
        (b'"text"', "application/json", 422, "validation"),
        (b"null", "application/json", 422, "validation"),
        (b"{}", "application/json", 422, "validation"),
        (b'{"name": "k", "scopes": ["fly"]}', "application/json", 422, "validation"),
        (b'{"name": "k\\u0000", "scopes": ["view"]}', "application/json", 422, "validation"),
        (b"x" * (2 * 1024 * 1024 + 1), "application/json", 413, "too_large"),
    ],
)
def test_a_bad_body_is_a_clear_refusal(
    world: World, call: Caller, body: bytes, media: str, status: int, expected: str
) -> None:
    answer = call.client.post(
        f"/api/v1/tenants/{world.tenant.pk}/api-keys", data=body, content_type=media
    )

    assert (answer.status_code, kind(answer)) == (status, expected)


@pytest.mark.parametrize(
    ("method", "path", "status", "expected"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/spaces/spc_x", 404, "not_found"),
        ("GET", "/spaces/%00", 404, "not_found"),
        ("DELETE", "/me", 405, "method_not_allowed"),
        ("OPTIONS", "/me", 405, "method_not_allowed"),
        ("GET", "/spaces?limit=0", 400, "invalid_request"),
        ("GET", "/spaces?limit=x", 400, "invalid_request"),
        ("GET", "/spaces?cursor=%FF", 400, "invalid_request"),
        ("GET", "/spaces?tenant=%00", 400, "invalid_request"),
        ("GET", "/audit?since=yesterday", 422, "validation"),
    ],
)
def test_a_bad_address_is_a_clear_refusal(
    call: Caller, method: str, path: str, status: int, expected: str
) -> None:
    answer = call(method, path)

    assert (answer.status_code, kind(answer)) == (status, expected)


def test_a_list_comes_in_pages_that_stay_right(world: World, call: Caller) -> None:
    path = f"/tenants/{world.tenant.pk}/members"
    first = call("GET", f"{path}?limit=2").json()
    Membership.objects.filter(tenant=world.tenant).earliest("pk").delete()
    rest = call("GET", f"{path}?limit=100&cursor={first['next_cursor']}").json()

    ids = [row["id"] for row in first["data"] + rest["data"]]
    assert ids == sorted(ids, reverse=True)
    assert len(ids) == len(set(ids)) == 4
    assert rest["next_cursor"] is None


def test_a_policy_changed_meanwhile_is_not_overwritten(world: World, call: Caller) -> None:
    path = f"/spaces/{world.space.pk}/network-policy"
    body = {"outbound": False, "inbound": False, "allow": ["Example.com."]}
    tag = call("GET", path).headers["ETag"]

    assert kind(call("PUT", path, body)) == "precondition_required"
    saved = call("PUT", path, body, If_Match=tag)
    assert saved.json()["data"]["allow"] == ["example.com"]
    assert saved.headers["ETag"] != tag
    assert kind(call("PUT", path, {**body, "allow": []}, If_Match=tag)) == "precondition_failed"
    assert call("GET", path, If_None_Match=saved.headers["ETag"]).status_code == 304
    broken = call("PUT", path, {**body, "deny": ["nonsense", "::1"]}, If_Match="*")
    assert [entry["index"] for entry in broken.json()["error"]["details"]["entries"]] == [0, 1]
    numbers = [row["number"] for row in call("GET", f"{path}/history").json()["data"]]
    assert numbers == [2, 1]


def test_secrets_of_a_backend_never_come_back(world: World, call: Caller) -> None:
    world.backend.secrets = {"api_key": "e2b_very-secret"}
    world.backend.save()
    answer = call("GET", f"/tenants/{world.tenant.pk}/backends/{world.backend.pk}")

    assert b"very-secret" not in answer.content
    assert answer.json()["data"]["secrets_set"] == ["api_key"]


def test_a_new_keys_secret_is_shown_once_and_works(world: World, call: Caller) -> None:
    path = f"/tenants/{world.tenant.pk}/api-keys"
    body = {"name": "n", "scopes": ["view"], "space_id": world.space.pk, "kind": "e2b"}
    made = call("POST", path, body).json()["data"]

    assert made["secret"].startswith("e2b_")
    assert "secret" not in call("GET", f"{path}/{made['id']}").json()["data"]
    assert Caller(made["secret"])("GET", "/me").json()["data"]["grants"] == [
        {"tenant_id": world.tenant.pk, "space_id": world.space.pk, "rights": ["view"]}
    ]


def test_nobody_makes_a_key_that_may_more_than_they(world: World, make_key: IssueKey) -> None:
    call = Caller(make_key(world.tenant, ["view", "manage"]))
    body = {"name": "n", "scopes": ["view", "run"]}

    assert kind(call("POST", f"/tenants/{world.tenant.pk}/api-keys", body)) == "forbidden"


SKILL_MD = "---\nname: pasted\ndescription: Does a thing when asked.\n---\n# Pasted\n"


def test_a_skill_comes_as_archive_folder_or_text(world: World, call: Caller) -> None:
    path = f"/api/v1/tenants/{world.tenant.pk}/skills"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("pasted/SKILL.md", SKILL_MD)
    packed.seek(0)
    packed.name = "pasted.zip"
    folder = io.BytesIO(SKILL_MD.encode())
    folder.name = "SKILL.md"

    pasted = call("POST", f"/tenants/{world.tenant.pk}/skills", {"skill_md": SKILL_MD})
    zipped = call.client.post(path, {"archive": packed})
    sent = call.client.post(path, {"files": [folder], "paths": ["pasted/SKILL.md"]})

    assert [pasted.status_code, zipped.status_code, sent.status_code] == [201] * 3, zipped.content
    ids = {answer.json()["data"]["id"] for answer in (pasted, zipped, sent)}
    assert len(ids) == 1, "the same content is the same version"
    version = pasted.json()["data"]
    plan = f"/tenants/{world.tenant.pk}/skills/{version['skill_id']}/versions/1/plan"
    present = call("GET", plan).json()["data"]
    assert call("PUT", plan, {"plan": present["plan"]}).json()["data"]["number"] == 1
    broken = {**present["plan"], "steps": [{"kind": "pip", "items": ["--index-url x"]}]}
    assert kind(call("PUT", plan, {"plan": broken})) == "validation"


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({}, 422),
        ({"archive": b"no archive"}, 422),
        ({"archive": gzip.compress(b"no tar")}, 422),
        ({"files": b"x"}, 422),
    ],
)
def test_a_bad_skill_is_refused_with_every_problem(
    world: World, call: Caller, form: dict[str, bytes], status: int
) -> None:
    files = {}
    for name, content in form.items():
        files[name] = io.BytesIO(content)
        files[name].name = "file"
    answer = call.client.post(f"/api/v1/tenants/{world.tenant.pk}/skills", files)

    assert (answer.status_code, kind(answer)) == (status, "validation")


def test_a_form_that_breaks_off_is_refused(world: World, call: Caller) -> None:
    answer = call.client.generic(
        "POST",
        f"/api/v1/tenants/{world.tenant.pk}/skills",
        data=b'--x\r\nContent-Disposition: form-data; name="archive"; filename',
        content_type="multipart/form-data; boundary=x",
    )
    assert answer.status_code in (400, 422)
    answer = call.client.generic(
        "POST",
        f"/api/v1/tenants/{world.tenant.pk}/skills",
        data=b"x",
        content_type="multipart/form-data",
    )
    assert (answer.status_code, kind(answer)) == (400, "invalid_request")


@pytest.mark.sandbox
class TestWithRedis:
    def test_the_same_request_with_the_same_key_has_one_effect(
        self, console: Server, api: httpx.Client
    ) -> None:
        path = f"/api/v1/tenants/{console.facts['tenant']}/api-keys"
        body = {"name": "once", "scopes": ["view"]}
        once = {"Idempotency-Key": "key-1"}

        first = api.post(path, json=body, headers=once)
        again = api.post(path, json=body, headers=once)
        other = api.post(path, json={**body, "name": "other"}, headers=once)
        assert first.status_code == again.status_code == 201
        assert again.json() == first.json()
        assert again.headers["Idempotency-Replayed"] == "true"
        assert (other.status_code, kind(other)) == (422, "validation")
        names = [row["name"] for row in api.get(path).json()["data"]]
        assert names.count("once") == 1
        strange = api.post(path, json=body, headers={"Idempotency-Key": "x" * 256})
        assert kind(strange) == "invalid_request"

    def test_a_refusal_is_not_kept(self, console: Server, api: httpx.Client) -> None:
        path = f"/api/v1/tenants/{console.facts['tenant']}/api-keys"
        once = {"Idempotency-Key": "key-2"}

        assert api.post(path, json={"name": "", "scopes": ["view"]}, headers=once).is_error
        mended = api.post(path, json={"name": "mended", "scopes": ["view"]}, headers=once)
        assert mended.status_code == 201

    def test_commands_are_in_the_audit_log(
        self, console: Server, api: httpx.Client, session: str
    ) -> None:
        api.post(f"{session}/exec", json={"argv": ["echo", "audited"]})
        for _ in range(100):
            rows = api.get("/api/v1/audit?action=session.exec").json()["data"]
            found = [row for row in rows if row["details"]["argv"] == "echo audited"]
            if found:
                break
            time.sleep(0.05)
        assert found[0]["details"]["exit_code"] == 0
        assert found[0]["actor"].startswith("key sky_")

    def test_the_body_of_a_stranger_is_not_read(self, console: Server) -> None:
        def endless() -> Any:
            while True:
                yield b"x" * 65536

        path = f"{console.session('s')}/files?path=x"
        with httpx.Client(base_url=console.url) as stranger:
            assert stranger.put(path, content=endless()).status_code == 401

    def test_every_answer_carries_the_request_id(self, api: httpx.Client) -> None:
        answer = api.get("/api/v1/me", headers={"X-Request-ID": "mine-1"})

        assert answer.headers["X-Request-ID"] == "mine-1"
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert len(api.get("/api/v1/me").headers["X-Request-ID"]) == 32

    def test_a_build_log_streams_and_resumes(self, console: Server, api: httpx.Client) -> None:
        facts = console.facts
        path = f"/api/v1/spaces/{facts['space']}/builds/{facts['build']}/log"
        whole = api.get(path).json()["data"]
        assert whole["finished"]
        middle = whole["lines"][len(whole["lines"]) // 2]["id"]
        streamed = api.get(
            path, headers={"Accept": "text/event-stream", "Last-Event-ID": str(middle)}
        ).text

        assert streamed.count("event: line") == sum(line["id"] > middle for line in whole["lines"])
        assert streamed.endswith("event: end\ndata: {}\n\n")
