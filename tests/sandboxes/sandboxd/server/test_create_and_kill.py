"""Create in both dialects, what it answers and refuses, and kill."""

from __future__ import annotations

import asyncio

import httpx

from sandboxes.errors import Capacity, Internal, Unavailable
from tests.sandboxes.sandboxd.server.scripted import ScriptedEngine


async def create(http: httpx.AsyncClient, path: str = "/v2/sandboxes", **body: object) -> dict:
    response = await http.post(path, json={"templateID": "base", **body})
    assert response.status_code == 201, response.text
    return response.json()


async def test_v2_is_always_secured_and_answers_201(http: httpx.AsyncClient) -> None:
    reply = await create(http, metadata={"a": "b"}, envVars={"FOO": "1"})

    assert reply["sandboxID"].isalnum()
    assert len(reply["sandboxID"]) == 20
    assert reply["templateID"] == "base-00000001"
    assert reply["alias"] == "base"
    assert reply["envdVersion"] == "0.6.4"
    assert reply["envdAccessToken"]
    assert reply["trafficAccessToken"] is None
    assert reply["domain"] is None
    assert reply["clientID"]


async def test_v1_gives_a_token_only_when_secure_is_asked_for(http: httpx.AsyncClient) -> None:
    assert "envdAccessToken" not in await create(http, "/sandboxes")
    assert (await create(http, "/sandboxes", secure=True))["envdAccessToken"]


async def test_default_timeouts_differ_between_the_dialects(http: httpx.AsyncClient) -> None:
    from datetime import datetime

    for path, seconds in (("/sandboxes", 15), ("/v2/sandboxes", 300)):
        reply = await create(http, path)
        detail = (await http.get(f"/sandboxes/{reply['sandboxID']}")).json()
        lived = datetime.fromisoformat(detail["endAt"]) - datetime.fromisoformat(
            detail["startedAt"]
        )
        assert abs(lived.total_seconds() - seconds) < 1


async def test_closed_inbound_gives_a_traffic_token(
    http: httpx.AsyncClient, engine: ScriptedEngine
) -> None:
    reply = await create(
        http,
        allow_internet_access=False,
        network={"allowPublicTraffic": False, "allowOut": ["pypi.org"], "denyOut": ["8.8.8.8"]},
    )

    assert reply["trafficAccessToken"]
    policy = engine.networks[reply["sandboxID"]]
    assert (policy.outbound, policy.inbound) == (False, False)
    assert policy.allow == ("pypi.org",)
    assert policy.deny == ("8.8.8.8/32",)
    detail = (await http.get(f"/sandboxes/{reply['sandboxID']}")).json()
    assert detail["allowInternetAccess"] is False
    assert detail["network"]["allowOut"] == ["pypi.org"]


async def test_refusals_are_sentences_that_name_the_field(http: httpx.AsyncClient) -> None:
    cases: list[tuple[dict, int, str]] = [
        ({}, 400, "templateID"),
        ({"templateID": "none"}, 404, "none"),
        ({"templateID": "base", "timeout": "x"}, 400, "timeout"),
        ({"templateID": "base", "timeout": -1}, 400, "timeout"),
        ({"templateID": "base", "metadata": {"a": 1}}, 400, "metadata"),
        ({"templateID": "base", "envVars": {"A=B": "1"}}, 400, "envVars"),
        ({"templateID": "base", "autoPauseMemory": False}, 400, "autoPauseMemory"),
        ({"templateID": "base", "network": {"denyOut": ["x.com"]}}, 400, "x.com"),
        ({"templateID": "base", "network": {"dnsServers": ["1.1.1.1"]}}, 501, "dnsServers"),
        (
            {"templateID": "base", "volumeMounts": [{"name": "v", "path": "/v"}]},
            501,
            "volumeMounts",
        ),
    ]
    for body, status, named in cases:
        response = await http.post("/v2/sandboxes", json=body)
        assert response.status_code == status, body
        assert response.json()["code"] == status
        assert named in response.json()["message"]


async def test_a_body_that_is_no_object_is_refused(http: httpx.AsyncClient) -> None:
    for content in (b"{", b"[]", b"\xff"):
        response = await http.post("/v2/sandboxes", content=content)
        assert response.status_code == 400
        assert response.json()["message"]


async def test_closed_inbound_needs_a_secured_sandbox(http: httpx.AsyncClient) -> None:
    body = {"templateID": "base", "network": {"allowPublicTraffic": False}}
    assert (await http.post("/sandboxes", json=body)).status_code == 400
    assert (await http.post("/sandboxes", json={**body, "secure": True})).status_code == 201


async def test_kill_is_204_and_then_404(http: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    path = f"/sandboxes/{(await create(http))['sandboxID']}"

    assert (await http.delete(path)).status_code == 204
    gone = await http.delete(path)
    assert gone.status_code == 404
    assert "not found" in gone.json()["message"]
    assert (await http.get(path)).status_code == 404
    assert engine.states == {}


async def test_two_kills_at_once_kill_once(http: httpx.AsyncClient) -> None:
    path = f"/sandboxes/{(await create(http))['sandboxID']}"
    codes = [r.status_code for r in await asyncio.gather(http.delete(path), http.delete(path))]
    assert sorted(codes) == [204, 404]


async def test_what_may_be_retried_says_so(http: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    engine.fail_next = Unavailable("the engine is busy")
    busy = await http.post("/v2/sandboxes", json={"templateID": "base"})
    assert busy.status_code == 503
    assert busy.headers["Retry-After"]
    assert "Should-Retry" not in busy.headers

    engine.fail_next = Capacity("too many sandboxes")
    assert (await http.post("/v2/sandboxes", json={"templateID": "base"})).status_code == 429

    engine.fail_next = Internal("who knows")
    unknown = await http.post("/v2/sandboxes", json={"templateID": "base"})
    assert unknown.status_code == 500
    assert unknown.headers["Should-Retry"] == "false"


async def test_an_idempotency_key_creates_once(
    http: httpx.AsyncClient, engine: ScriptedEngine
) -> None:
    async def post(key: str, **body: object) -> httpx.Response:
        return await http.post(
            "/v2/sandboxes",
            json={"templateID": "base", **body},
            headers={"Idempotency-Key": key},
        )

    first, second = await asyncio.gather(post("k-1"), post("k-1"))
    assert first.json() == second.json()
    assert len(engine.states) == 1
    other = await post("k-1", timeout=5)
    assert other.status_code == 409
    assert "Idempotency-Key" in other.json()["message"]
    assert (await post("k 2")).status_code == 400


async def test_a_key_whose_create_failed_may_be_used_again(
    http: httpx.AsyncClient, engine: ScriptedEngine
) -> None:
    engine.fail_next = Unavailable("busy")
    headers = {"Idempotency-Key": "again"}
    body = {"templateID": "base"}
    assert (await http.post("/v2/sandboxes", json=body, headers=headers)).status_code == 503
    assert (await http.post("/v2/sandboxes", json=body, headers=headers)).status_code == 201


async def test_a_bug_is_json_too(http: httpx.AsyncClient) -> None:
    reply = await create(http)
    headers = {
        "E2b-Sandbox-Id": reply["sandboxID"],
        "E2b-Sandbox-Port": "49983",
        "X-Access-Token": reply["envdAccessToken"],
    }
    # The scripted engine has no files.
    response = await http.get("/files?path=x", headers=headers)
    assert response.status_code == 500
    assert response.json() == {"code": 500, "message": "sandboxd failed; its log says why"}


async def test_errors_are_json_on_every_path(http: httpx.AsyncClient) -> None:
    for method, path, status in (
        ("GET", "/nowhere", 404),
        ("PATCH", "/sandboxes", 405),
        ("POST", "/sandboxes/abc/fork", 501),
        ("GET", "/volumes", 501),
        ("POST", "/v3/templates", 501),
        ("GET", "/health", 400),
    ):
        response = await http.request(method, path)
        assert response.status_code == status, path
        assert response.json()["code"] == status
        assert response.json()["message"]
