"""The OpenAPI document is complete, and the API does what it says: generated requests, real answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from django.core.management import call_command
from django.urls import resolve
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi import checks as openapi_checks

from console.api.reference.document import document, operations
from console.api.urls import urlpatterns
from tests.console.api import server as servers
from tests.console.api.test_every_route_asks_who_you_are import OPEN_TO_ALL, routes
from tests.sandboxes import daemon as daemons
from tests.sandboxes.sessions.world import RedisServer

generated = schemathesis.openapi.from_dict(document())

CHECKED = [
    schemathesis.checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_headers_conformance,
    openapi_checks.response_schema_conformance,
    openapi_checks.ignored_auth,
]


def test_the_document_is_valid_and_made_without_a_warning(tmp_path: Path) -> None:
    call_command(
        "spectacular", "--validate", "--fail-on-warn", "--file", str(tmp_path / "schema.yml")
    )


def test_every_method_is_described() -> None:
    described = {(item.method, item.path) for items in operations().values() for item in items}
    methods = sum(
        len(pattern.callback.cls.needs)
        for pattern, _ in routes(urlpatterns)
        if pattern.name not in OPEN_TO_ALL
    )
    assert len(described) == methods
    for items in operations().values():
        for item in items:
            statuses = {status for status, _ in item.refusals}
            assert {"400", "401", "405", "429", "500", "503"} <= statuses, item.id
            assert item.summary, item.id


def test_whatever_makes_something_takes_an_idempotency_key() -> None:
    for path, methods in document()["paths"].items():
        if "post" not in methods:
            continue
        view = resolve(
            path.replace("{number}", "1").replace("{index}", "1").replace("{member}", "1")
        )
        described = {item["name"] for item in methods["post"]["parameters"]}
        makes = {"201", "202"} & set(methods["post"]["responses"])
        assert ("Idempotency-Key" in described) == view.func.cls.creates, path
        assert view.func.cls.creates or not makes, path


def test_the_reference_needs_no_sign_in_and_no_script(client: Any) -> None:
    page = client.get("/api/docs/")

    assert page.status_code == 200
    assert b"<script" not in page.content
    assert b"sessions_exec" in page.content
    assert "script-src" not in page.headers["Content-Security-Policy"]
    assert client.get("/api/schema/").json()["openapi"].startswith("3.")
    assert client.get("/api/schema/?format=yaml").content.startswith(b"openapi:")


@pytest.fixture(scope="module")
def target(
    tmp_path_factory: pytest.TempPathFactory,
    redis_server: RedisServer,
    sandboxd: daemons.Daemon,
) -> Iterator[servers.Server]:
    """A console of its own, for the requests archive, revoke and delete what they find."""
    with servers.start(
        tmp_path_factory.mktemp("schema"),
        redis_socket=redis_server.socket,
        sandboxd_socket=str(sandboxd.socket),
        TESTED_SKILL="1",
        SKILLYARD_REDIS_NAMESPACE="schema",
    ) as server:
        yield server
        httpx.delete(f"{server.url}{server.session('generated')}", headers=server.headers())


@pytest.mark.slow
@pytest.mark.sandbox
@pytest.mark.timeout(600)
@generated.parametrize()
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
def test_generated_requests_get_described_answers(
    case: schemathesis.Case, target: servers.Server
) -> None:
    facts = target.facts
    ids = {
        "space": facts["space"],
        "tenant": facts["tenant"],
        "session": "generated",
        "name": "greeter",
        "build": facts["build"],
        "release": facts["release"],
        "backend": facts["backend"],
        "skill": facts["skill"],
        "number": 1,
        "index": 0,
    }
    for name in case.path_parameters or {}:
        if name in ids:
            case.path_parameters[name] = ids[name]

    case.call_and_validate(
        base_url=target.url, headers=target.headers(), checks=CHECKED, timeout=60
    )
