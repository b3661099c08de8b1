"""Whatever comes in, on whichever address: an answer in the envelope that says what is wrong, never a 500."""

from __future__ import annotations

import json
import string
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from django.test import Client
from django.urls import reverse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.api.errors import KINDS
from console.api.reference.document import document
from console.api.views import MAX_JSON_BYTES
from console.tenants.access import Action
from tests.console.api.conftest import IssueKey
from tests.console.api.server import Server
from tests.console.api.test_every_route_asks_who_you_are import IDS, RULES
from tests.console.cast import World

BODIES = ("POST", "PUT", "PATCH")
TAKES_NO_JSON = {"files", "inputs", "skills"}
"""PUT a file, POST a form: whatever is sent there is content."""
HOSTILE = [
    "x" * 3000,
    "..",
    "-1",
    "9" * 40,
    "' OR 1=1 --",
    "%00",
    "%2e%2e%2fetc",
    "\N{RIGHT-TO-LEFT OVERRIDE}\N{COLLISION SYMBOL}",
    "{}",
]
BAD_BODIES: list[tuple[str, bytes, str]] = [
    ("no JSON", b"{", "application/json"),
    ("cut off", b'{"name": "x', "application/json"),
    ("NaN", b'{"name": NaN}', "application/json"),
    ("no UTF-8", b'{"name": "\xff"}', "application/json"),
    ("surrogate", b'{"name": "\\ud800"}', "application/json"),
    ("too deep", b"[" * 50_000, "application/json"),
    ("list", b"[1, 2]", "application/json"),
    ("text", b'"text"', "application/json"),
    ("null", b"null", "application/json"),
    ("number", b"1e999", "application/json"),
    ("another type", b"name=x", "application/x-www-form-urlencoded"),
    ("no type", b"{}", ""),
    ("too large", b'{"name": "' + b"x" * MAX_JSON_BYTES + b'"}', "application/json"),
]


class Caller:
    def __init__(self, key: str) -> None:
        self.client = Client(headers={"X-API-Key": key}, raise_request_exception=True)

    def __call__(self, method: str, address: str, body: bytes = b"", media: str = "") -> int:
        answer = self.client.generic(method, address, data=body, content_type=media)
        return read(answer, f"{method} {address[:200]} {body[:80]!r}")


def read(answer: Any, what: str) -> int:
    """The status of an answer that keeps to the envelope."""
    status = int(answer.status_code)
    if getattr(answer, "streaming", False):
        answer.close()
        return status
    if not answer.content or status == 304:
        assert status in (204, 304), what
        return status
    if "json" not in answer.headers["Content-Type"]:
        assert status == 200, what
        return status
    told = json.loads(answer.content)
    assert told["success"] is (status < 400), what
    if status >= 400:
        error = told["error"]
        assert set(error) == {"code", "kind", "message", "details"}, what
        assert KINDS[error["kind"]] == (status, error["code"]), what
        assert error["message"].strip(), what
        assert error["kind"] != "internal", f"{what}: {error}"
        assert "Traceback" not in error["message"], what
    return status


@pytest.fixture
def call(world: World, make_key: IssueKey) -> Caller:
    return Caller(make_key(world.tenant, list(Action)))


def ids_of(world: World) -> dict[str, Any]:
    return {
        "space": world.space.pk,
        "tenant": world.tenant.pk,
        "session": world.session.session_id,
        "name": world.skill.name,
        "build": world.build.pk,
        "index": 0,
        "release": world.release.pk,
        "member": world.people["viewer"].memberships.get().pk,
        "key": world.key.pk,
        "backend": world.backend.pk,
        "report": world.report.pk,
        "template": "base",
        "former": world.former.pk,
        "skill": world.skill.pk,
        "number": 1,
    }


@pytest.mark.parametrize("name", sorted(name for name, ids in IDS.items() if ids))
def test_a_hostile_id(world: World, call: Caller, name: str) -> None:
    good = ids_of(world)
    plain = reverse(f"api:{name}", kwargs={wanted: good[wanted] for wanted in IDS[name]})
    for wanted in IDS[name]:
        for value in HOSTILE:
            address = plain.replace(f"/{quote(str(good[wanted]), safe='')}", f"/{quote(value)}", 1)
            call("GET", address)
            call("DELETE", address)


@pytest.mark.parametrize(
    "route",
    sorted(route for route in RULES if route[1] in BODIES and route[0] not in TAKES_NO_JSON),
)
def test_a_hostile_body(world: World, call: Caller, route: tuple[str, str]) -> None:
    name, method = route
    good = ids_of(world)
    address = reverse(f"api:{name}", kwargs={wanted: good[wanted] for wanted in IDS[name]})
    for what, body, media in BAD_BODIES:
        status = call(method, address, body, media)
        if what in ("no JSON", "cut off", "NaN", "no UTF-8", "surrogate", "too deep"):
            assert status == 400, what
        elif what in ("another type", "no type"):
            assert status == 415, what
        elif what == "too large":
            assert status == 413, what


@pytest.mark.parametrize("name", sorted(IDS))
def test_a_wrong_method(world: World, call: Caller, name: str) -> None:
    if name in ("nowhere", "schema", "docs"):
        return
    good = ids_of(world)
    address = reverse(f"api:{name}", kwargs={wanted: good[wanted] for wanted in IDS[name]})
    allowed = {method for route, method in RULES if route == name}
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"} - allowed:
        answer = call.client.generic(method, address)
        assert read(answer, f"{method} {address}") == 405
        assert set(answer.headers["Allow"].split(", ")) == allowed


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = [
    "name", "slug", "scopes", "space_id", "backend_id", "tenant_id", "settings", "secrets", "env", "argv",
    "command", "timeout_s", "outbound", "inbound", "allow", "deny", "host", "percent", "sessions", "add",
    "remove", "versions", "trigger", "username", "role", "admin", "expires_at", "plan", "dry_run", "path",
    "script", "reason", "template", "rollout", "idle_timeout_s",
]  # fmt: skip


@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    body=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6),
    route=st.sampled_from(
        sorted(route for route in RULES if route[1] in BODIES and route[0] not in TAKES_NO_JSON)
    ),
)
def test_fields_of_any_kind(
    world: World, call: Caller, body: dict[str, Any], route: tuple[str, str]
) -> None:
    name, method = route
    good = ids_of(world)
    address = reverse(f"api:{name}", kwargs={wanted: good[wanted] for wanted in IDS[name]})
    call(method, address, json.dumps(body).encode(), "application/json")


def part(headers: str, content: bytes = b"x") -> bytes:
    return b"--b\r\n" + headers.encode() + b"\r\n\r\n" + content + b"\r\n"


FORM = "multipart/form-data; boundary=b"
FILE = 'Content-Disposition: form-data; name="files"; filename='
FORMS: list[tuple[str, str, bytes]] = [
    ("no boundary", "multipart/form-data", b"x"),
    ("bad boundary", "multipart/form-data; boundary=" + "\xe9" * 3, b"x"),
    ("nothing", FORM, b""),
    ("cut off", FORM, part(f'{FILE}"a"')[:-30]),
    ("no name", FORM, part("Content-Disposition: form-data") + b"--b--\r\n"),
    ("NUL in a name", FORM, part(f'{FILE}"a\0b"') + b"--b--\r\n"),
    ("way out", FORM, part(f'{FILE}"../../etc/passwd"') + b"--b--\r\n"),
    (
        "no base64",
        FORM,
        part(f'{FILE}"a"\r\nContent-Transfer-Encoding: base64', b"\xff!") + b"--b--",
    ),
    ("many fields", FORM, part('Content-Disposition: form-data; name="f"') * 2000 + b"--b--\r\n"),
    ("many files", FORM, part(f'{FILE}"a"') * 2000 + b"--b--\r\n"),
    ("nested", FORM, part("Content-Type: multipart/mixed; boundary=b") * 50 + b"--b--\r\n"),
    ("JSON", "application/json", b"{}"),
]


@pytest.mark.parametrize(("what", "media", "body"), FORMS, ids=[what for what, _, _ in FORMS])
@pytest.mark.parametrize("name", ["inputs", "skills"])
def test_a_hostile_form(
    world: World, call: Caller, name: str, what: str, media: str, body: bytes
) -> None:
    good = ids_of(world)
    address = reverse(f"api:{name}", kwargs={wanted: good[wanted] for wanted in IDS[name]})
    assert call("POST", address, body, media) in (400, 415, 422, 503)


def test_an_upload_that_is_too_large(world: World, call: Caller, settings: Any) -> None:
    settings.API_MAX_UPLOAD_BYTES = 10_000
    address = reverse("api:inputs", kwargs={"space": world.space.pk, "session": "s"})
    body = part(f'{FILE}"a"', b"x" * 20_000) + b"--b--\r\n"
    assert call("POST", address, body, FORM) == 413


def queries() -> list[tuple[str, str]]:
    """(address with ids to fill in, parameter) of every read that takes one."""
    return sorted(
        {
            (path, parameter["name"])
            for path, methods in document()["paths"].items()
            for parameter in methods.get("get", {}).get("parameters", ())
            if parameter["in"] == "query"
        }
    )


@pytest.mark.parametrize("value", ["%00", "%FF", "-1", "9" * 40, "", "%F0%9F%92%A5", "x" * 3000])
def test_a_hostile_query(world: World, call: Caller, value: str) -> None:
    good = ids_of(world)
    for path, parameter in queries():
        call("GET", f"{path.format(**good)}?{parameter}={value}")


@pytest.mark.sandbox
class TestOnTheWire:
    """What Django's test client would not send."""

    @pytest.mark.parametrize(
        "path",
        [
            b"/api/v1/spaces/%ff",
            b"/api/v1/spaces/%00",
            b"/api/v1/spaces/..%2f..%2fetc",
            b"/api/v1//spaces",
            b"/api/v1/spaces/%",
            b"/api/v1/spaces/" + b"x" * 8000,
            b"/api/v2/spaces",
            b"/api/",
        ],
    )
    def test_a_hostile_path(self, console: Server, path: bytes) -> None:
        address = httpx.URL(console.url).copy_with(raw_path=path)
        with httpx.Client(headers=console.headers()) as client:
            answer = client.get(address)
        assert read(answer, str(path[:100])) in (400, 404)

    def test_a_hostile_header(self, console: Server) -> None:
        for name, value in [
            ("X-API-Key", "sky_" + "0" * 5000),
            ("X-API-Key", "\xff\xfe".encode("latin-1").decode("latin-1")),
            ("Authorization", "Bearer"),
            ("Authorization", "Bearer " + string.printable.strip()),
            ("Content-Type", "x" * 2000),
            ("Idempotency-Key", "\x80"),
            ("X-Request-ID", "\xe9" * 100),
            ("Accept", "text/event-stream, */*;q=" + "9" * 500),
            ("If-None-Match", '"' * 1000),
        ]:
            headers = {**console.headers(), name: value.encode("latin-1")}
            path = f"/api/v1/spaces/{console.facts['space']}/network-policy"
            answer = httpx.get(f"{console.url}{path}", headers=headers)
            assert read(answer, name) in (200, 401, 429)

    def test_a_body_that_says_too_much_of_itself(self, console: Server) -> None:
        path = f"/api/v1/tenants/{console.facts['tenant']}/api-keys"
        with httpx.Client(base_url=console.url, headers=console.headers()) as client:
            sent = client.post(
                path,
                content=(b"[" * 65536 for _ in range(64)),
                headers={"Content-Type": "application/json"},
            )
        assert read(sent, "4 MiB in chunks") == 413
