"""Who may, who may not, and how each refusal reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.console.api.server import Server

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def http(console: Server) -> Iterator[httpx.Client]:
    key = {"X-API-Key": console.facts["keys"]["e2b"]}
    with httpx.Client(base_url=console.url, headers=key, timeout=60) as client:
        yield client


@pytest.fixture
def made(http: httpx.Client) -> Iterator[dict[str, Any]]:
    answer = http.post("/v2/sandboxes", json={"templateID": "base", "timeout": 60})
    assert answer.status_code == 201, answer.text
    yield answer.json()
    http.delete(f"/sandboxes/{answer.json()['sandboxID']}")


def test_bad_keys_are_refused_in_json(console: Server) -> None:
    def status(headers: dict[str, str]) -> tuple[int, str]:
        answer = httpx.get(f"{console.url}/v2/sandboxes", headers=headers)
        assert answer.json()["code"] == answer.status_code
        return answer.status_code, answer.json()["message"]

    keys = console.facts["keys"]
    assert status({})[0] == 401
    assert status({"X-API-Key": "e2b_" + "0" * 40})[0] == 401
    assert status({"X-API-Key": "no key"})[0] == 401
    assert status({"X-API-Key": keys["view"], "X-Skillyard-Space": "lab"})[0] == 403
    assert "X-Skillyard-Space" in status({"X-API-Key": keys["all"]})[1]
    assert (
        status({"X-API-Key": keys["all"], "X-Skillyard-Space": console.facts["rival_space"]})[0]
        == 403
    )
    assert (
        status({"X-API-Key": keys["e2b"], "X-Skillyard-Space": console.facts["rival_space"]})[0]
        == 403
    )
    for space in ("lab", console.facts["space"]):
        answer = httpx.get(
            f"{console.url}/v2/sandboxes",
            headers={"Authorization": f"Bearer {keys['all']}", "X-Skillyard-Space": space},
        )
        assert answer.status_code == 200


def test_another_space_s_sandbox_does_not_exist(console: Server, made: dict[str, Any]) -> None:
    rival = {
        "X-API-Key": console.facts["keys"]["rival"],
        "X-Skillyard-Space": console.facts["rival_space"],
    }
    path = f"{console.url}/sandboxes/{made['sandboxID']}"
    for method, suffix in [
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/pause"),
        ("POST", "/connect"),
        ("POST", "/timeout"),
        ("POST", "/refreshes"),
        ("POST", "/snapshots"),
        ("PUT", "/network"),
        ("GET", "/metrics"),
    ]:
        answer = httpx.request(method, path + suffix, headers=rival, json={"timeout": 60})
        assert answer.status_code == 404, (method, suffix, answer.text)
    assert httpx.get(f"{console.url}/v2/sandboxes", headers=rival).json() == []


def test_ours_is_hidden_and_reserved(http: httpx.Client, made: dict[str, Any]) -> None:
    detail = http.get(f"/sandboxes/{made['sandboxID']}").json()
    assert detail["metadata"] == {}
    for name in ("skillyard_tenant", "skillyard_x", "host-mount"):
        body = {"templateID": "base", "metadata": {name: "mine"}}
        refused = http.post("/v2/sandboxes", json=body)
        assert refused.status_code == 400
        assert name in refused.json()["message"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"network": {"allowPublicTraffic": True}}, "inbound closed"),
        ({"network": {"allowOut": ["10.0.0.1"], "denyOut": ["0.0.0.0/0"]}}, "does not allow"),
    ],
)
def test_a_wider_network_is_refused_with_the_reason(
    http: httpx.Client, body: dict[str, Any], reason: str
) -> None:
    refused = http.post("/v2/sandboxes", json={"templateID": "base", **body})
    assert refused.status_code == 403
    assert reason in refused.json()["message"]


def test_the_same_idempotency_key_gives_the_same_sandbox(http: httpx.Client) -> None:
    body, key = {"templateID": "base", "timeout": 60}, {"Idempotency-Key": "once-1"}
    first = http.post("/v2/sandboxes", json=body, headers=key).json()
    again = http.post("/v2/sandboxes", json=body, headers=key)
    assert again.status_code == 201
    assert again.json()["sandboxID"] == first["sandboxID"]
    for token in ("envdAccessToken", "trafficAccessToken"):
        assert first[token]
        assert again.json()[token] == first[token]
    other = http.post("/v2/sandboxes", json={**body, "timeout": 61}, headers=key)
    assert other.status_code == 409
    assert http.delete(f"/sandboxes/{first['sandboxID']}").status_code == 204


def test_both_versions_of_create_and_connect(http: httpx.Client) -> None:
    made = http.post(
        "/sandboxes",
        json={
            "templateID": "base",
            "timeout": 60,
            "secure": True,
            "allow_internet_access": True,
            "metadata": {},
            "envVars": {},
        },
    )
    assert made.status_code == 201
    path = f"/sandboxes/{made.json()['sandboxID']}"
    assert http.post(f"{path}/connect", json={}).status_code == 400
    assert http.post(f"{path}/connect", json={"timeout": 60}).status_code == 200
    assert http.post(f"/v2{path}/connect").status_code == 200
    assert http.post(f"{path}/pause").status_code == 204
    assert http.post(f"{path}/pause").status_code == 409
    assert http.post(f"{path}/resume", json={"timeout": 60}).status_code == 201
    assert http.post(f"{path}/refreshes", json={"duration": 60}).status_code == 204
    assert made.json()["sandboxID"] in [item["sandboxID"] for item in http.get("/sandboxes").json()]
    assert http.post(f"{path}/fork", json={}).status_code == 501
    assert http.delete(path).status_code == 204
    assert http.delete(path).status_code == 404


def test_the_switches_of_an_older_client_say_nothing(http: httpx.Client) -> None:
    """They are on in every create of theirs, asked for or not; off is a wish."""
    body = {"templateID": "base", "timeout": 60, "secure": True, "allow_internet_access": True}
    made = http.post("/sandboxes", json={**body, "network": {"allowPublicTraffic": True}})
    assert made.status_code == 201, made.text
    assert made.json()["trafficAccessToken"]
    path = f"/sandboxes/{made.json()['sandboxID']}"
    assert http.get(path).json()["network"]["allowPublicTraffic"] is False
    http.delete(path)
    closed = http.post("/sandboxes", json={**body, "allow_internet_access": False})
    path = f"/sandboxes/{closed.json()['sandboxID']}"
    assert http.get(path).json()["allowInternetAccess"] is False
    http.delete(path)


def test_templates_have_names(http: httpx.Client) -> None:
    listed = http.get("/templates").json()
    assert listed
    assert http.get("/v2/templates?limit=1").headers.get("x-next-token") or len(listed) == 1
    base = http.get("/templates/aliases/base")
    assert base.json()["templateID"] == http.get("/templates/aliases/current").json()["templateID"]
    assert http.get("/templates/aliases/nowhere").status_code == 404
    assert http.get("/templates/aliases/release-7").status_code == 404
    refused = http.post("/v2/sandboxes", json={"templateID": "release-7"})
    assert (refused.status_code, "release-7" in refused.json()["message"]) == (404, True)
    assert http.delete(f"/templates/{base.json()['templateID']}").status_code == 403
    assert http.delete("/templates/team%2Fnowhere%3Adefault").status_code == 404


def test_the_key_never_reaches_a_sandbox(http: httpx.Client, made: dict[str, Any]) -> None:
    """A server in the sandbox writes down what it was sent."""
    access = {"X-Access-Token": made["envdAccessToken"]}
    there = {"E2b-Sandbox-Id": made["sandboxID"], "E2b-Sandbox-Port": "49983", **access}
    script = (
        "import http.server\n"
        "class H(http.server.BaseHTTPRequestHandler):\n"
        "  def do_GET(self):\n"
        "    body = str(self.headers).encode(); self.send_response(200)\n"
        "    self.send_header('Content-Length', str(len(body))); self.end_headers(); self.wfile.write(body)\n"
        "http.server.HTTPServer(('127.0.0.1', 8200), H).serve_forever()\n"
    )
    put = http.post(
        "/files", params={"path": "s.py"}, files={"file": ("s.py", script)}, headers=there
    )
    assert put.status_code == 200
    from e2b import Sandbox

    options: dict[str, Any] = {
        "api_url": str(http.base_url),
        "sandbox_url": str(http.base_url),
        "api_key": http.headers["X-API-Key"],
        "domain": "gateway.test",
    }
    sandbox = Sandbox.connect(made["sandboxID"], **options)
    sandbox.commands.run("python3 s.py", background=True)
    sandbox.commands.run("for i in $(seq 100); do curl -s localhost:8200 && break; sleep 0.1; done")
    key = http.headers["X-API-Key"]
    seen = http.get(
        "/",
        headers={
            "E2b-Sandbox-Id": made["sandboxID"],
            "E2b-Sandbox-Port": "8200",
            "e2b-traffic-access-token": made["trafficAccessToken"],
            "Authorization": f"Bearer {key}",
            "Cookie": "session=console; csrftoken=console; theirs=1",
            "X-Access-Token": made["envdAccessToken"],
        },
    )
    assert seen.status_code == 200
    for secret in (key, "console", made["trafficAccessToken"], made["envdAccessToken"]):
        assert secret not in seen.text
    assert "theirs=1" in seen.text


def test_the_data_plane_answers_as_the_sdk_expects(
    http: httpx.Client, made: dict[str, Any]
) -> None:
    there = {"E2b-Sandbox-Id": made["sandboxID"], "E2b-Sandbox-Port": "49983"}
    assert http.get("/health", headers=there).status_code == 204
    assert http.get("/envs", headers=there).status_code == 401
    assert http.post("/init", headers=there).status_code == 404
    assert http.get("/health").status_code == 400
    gone = http.get("/health", headers={**there, "E2b-Sandbox-Id": "a" * 20})
    assert (gone.status_code, gone.json()["message"]) == (502, "The sandbox was not found")
    assert http.get("/health", headers={"E2b-Sandbox-Id": "a" * 20}).status_code == 400
