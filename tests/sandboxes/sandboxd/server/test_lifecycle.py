"""Pause, resume, timeouts, transitions and deaths, on cue."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from sandboxes.errors import Unavailable
from sandboxes.sandboxd.app import Daemon, RequireApiKey
from sandboxes.sandboxd.engines.base import EngineSandboxState
from tests.sandboxes.sandboxd.server.raw import RawSandbox, until
from tests.sandboxes.sandboxd.server.scripted import ScriptedEngine


async def create(http: httpx.AsyncClient, **body: Any) -> RawSandbox:
    response = await http.post("/v2/sandboxes", json={"templateID": "base", **body})
    assert response.status_code == 201, response.text
    return RawSandbox(http, response.json())


async def post(sandbox: RawSandbox, action: str, body: dict | None = None) -> httpx.Response:
    return await sandbox.http.post(f"/sandboxes/{sandbox.id}/{action}", json=body or {})


async def connect(sandbox: RawSandbox, **body: Any) -> httpx.Response:
    return await sandbox.http.post(f"/v2/sandboxes/{sandbox.id}/connect", json=body)


async def detail(sandbox: RawSandbox) -> dict[str, Any]:
    return (await sandbox.http.get(f"/sandboxes/{sandbox.id}")).json()  # type: ignore[no-any-return]


async def end_at(sandbox: RawSandbox) -> datetime:
    return datetime.fromisoformat((await detail(sandbox))["endAt"])


async def state_becomes(sandbox: RawSandbox, state: str | None) -> None:
    async def reached() -> bool:
        return (await detail(sandbox)).get("state") == state

    await until(reached)


async def test_pause_once_then_409_and_connect_resumes_once(http: httpx.AsyncClient) -> None:
    sandbox = await create(http)
    assert (await connect(sandbox)).status_code == 200
    assert (await post(sandbox, "pause")).status_code == 204
    assert (await post(sandbox, "pause")).status_code == 409
    paused = await detail(sandbox)
    assert (paused["state"], paused["pauseMode"]) == ("paused", "full")
    assert (await post(sandbox, "timeout", {"timeout": 5})).status_code == 409

    resumed = await connect(sandbox, timeout=77)
    assert resumed.status_code == 201
    assert resumed.json() == sandbox.reply
    assert (await connect(sandbox)).status_code == 200
    assert (await detail(sandbox))["state"] == "running"


async def test_v1_connect_needs_a_timeout_and_resume_a_paused_sandbox(
    http: httpx.AsyncClient,
) -> None:
    sandbox = await create(http)
    assert (await post(sandbox, "connect")).status_code == 400
    assert (await post(sandbox, "connect", {"timeout": 30})).status_code == 200
    assert (await post(sandbox, "resume")).status_code == 409
    await post(sandbox, "pause")
    assert (await post(sandbox, "resume", {"timeout": 30})).status_code == 201


async def test_memory_cannot_be_dropped(http: httpx.AsyncClient) -> None:
    sandbox = await create(http)
    for response in (
        await post(sandbox, "pause", {"memory": False}),
        await connect(sandbox, memory=False),
        await post(sandbox, "snapshots", {"memory": False}),
    ):
        assert response.status_code == 400
        assert "memory" in response.json()["message"]
    assert (await post(sandbox, "pause", {"memory": True})).status_code == 204


async def test_connect_and_refresh_extend_but_never_shorten(http: httpx.AsyncClient) -> None:
    sandbox = await create(http, timeout=300)
    first = await end_at(sandbox)
    await connect(sandbox, timeout=10)
    await post(sandbox, "refreshes", {"duration": 10})
    assert await end_at(sandbox) == first
    await connect(sandbox, timeout=600)
    second = await end_at(sandbox)
    assert (second - first).total_seconds() > 290
    await post(sandbox, "refreshes", {"duration": 900})
    assert (await end_at(sandbox) - second).total_seconds() > 290
    assert (await post(sandbox, "timeout", {"timeout": 10})).status_code == 204
    assert await end_at(sandbox) < first


async def test_a_timeout_kills(http: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    sandbox = await create(http)
    await post(sandbox, "timeout", {"timeout": 0})
    await state_becomes(sandbox, None)
    assert engine.states == {}


async def test_a_timeout_pauses_if_asked(http: httpx.AsyncClient) -> None:
    sandbox = await create(http, autoPause=True)
    assert (await detail(sandbox))["lifecycle"] == {"autoResume": False, "onTimeout": "pause"}
    await post(sandbox, "timeout", {"timeout": 0})
    await state_becomes(sandbox, "paused")
    gone = await http.get("/health", headers=sandbox.headers())
    assert gone.status_code == 502
    assert "was not found" in gone.json()["message"]


async def test_an_expiry_that_fails_is_tried_again(
    http: httpx.AsyncClient, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandboxes.sandboxd.service._RETRY_EXPIRY_S", 0.05)
    sandbox = await create(http, autoPause=True)
    engine.fail_next = Unavailable("not now")
    await post(sandbox, "timeout", {"timeout": 0})
    await state_becomes(sandbox, "paused")


async def test_traffic_wakes_a_sandbox_that_may_wake(
    http: httpx.AsyncClient, engine: ScriptedEngine
) -> None:
    sandbox = await create(http, autoPause=True, autoResume={"enabled": True}, timeout=60)
    await post(sandbox, "pause")

    stranger = {k: v for k, v in sandbox.headers().items() if k != "X-Access-Token"}
    assert (await http.get("/health", headers=stranger)).status_code == 401
    assert (await detail(sandbox))["state"] == "paused"

    codes = await asyncio.gather(
        *(http.get("/health", headers=sandbox.headers()) for _ in range(20))
    )
    assert {response.status_code for response in codes} == {204}
    assert (await detail(sandbox))["state"] == "running"

    await post(sandbox, "pause")
    assert (await http.get("/", headers=sandbox.headers(8000))).status_code == 502
    assert (await detail(sandbox))["state"] == "running"


async def test_a_change_under_way_is_a_409(http: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    sandbox = await create(http)
    engine.hold = asyncio.Event()
    pausing = asyncio.ensure_future(post(sandbox, "pause"))
    await asyncio.sleep(0.01)

    assert (await post(sandbox, "pause")).status_code == 409
    assert (await http.get("/health", headers=sandbox.headers())).status_code == 409
    killing = asyncio.ensure_future(http.delete(f"/sandboxes/{sandbox.id}"))
    engine.hold.set()
    assert (await pausing).status_code == 204
    assert (await killing).status_code == 204


async def test_a_death_by_another_hand_is_noticed(
    http: httpx.AsyncClient, engine: ScriptedEngine
) -> None:
    sandbox = await create(http)
    engine.states[sandbox.id] = EngineSandboxState.DEAD

    health = await http.get("/health", headers=sandbox.headers())
    assert health.status_code == 502
    assert "was not found" in health.json()["message"]
    assert (await connect(sandbox)).status_code == 404

    async def cleared() -> bool:
        return not engine.states

    await until(cleared)


async def test_a_network_update_replaces_everything(
    http: httpx.AsyncClient, engine: ScriptedEngine
) -> None:
    sandbox = await create(http, network={"denyOut": ["8.8.8.8"], "allowPublicTraffic": False})
    path = f"/sandboxes/{sandbox.id}/network"
    assert (await http.put(path, json={"allow_internet_access": False})).status_code == 204
    policy = engine.networks[sandbox.id]
    assert (policy.outbound, policy.inbound, policy.deny) == (False, False, ())
    assert (await http.put(path, json={})).status_code == 204
    assert engine.networks[sandbox.id].outbound is True
    assert (await http.put(path, json={"denyOut": ["no"]})).status_code == 400


async def test_a_restart_keeps_promises_and_clears_strays(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    first = await Daemon.start(engine, tmp_path)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(first.app), base_url="http://x"
    ) as http:
        kept = await create(http, metadata={"k": "v"}, envVars={"A": "1"}, timeout=100)
        slept = await create(http)
        await post(slept, "pause")
        lost = await create(http)
        due = await create(http, timeout=100)
        named = await http.post(f"/sandboxes/{kept.id}/snapshots", json={"name": "first"})
        once = {"Idempotency-Key": "once"}
        body = {"templateID": "base"}
        receipt = (await http.post("/v2/sandboxes", json=body, headers=once)).json()
        before = await detail(kept)
        await post(due, "timeout", {"timeout": 0.3})
    await first.aclose()
    del engine.states[lost.id]
    engine.states["stray"] = EngineSandboxState.RUNNING

    second = await Daemon.start(engine, tmp_path)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(second.app), base_url="http://x"
    ) as http:
        for sandbox in (kept, slept, lost, due):
            sandbox.http = http
        assert await detail(kept) == before
        assert (await http.get("/health", headers=kept.headers())).status_code == 204
        assert (await detail(slept))["state"] == "paused"
        assert (await detail(lost))["code"] == 404
        assert "stray" not in engine.states
        await state_becomes(due, None)
        again = (await http.post("/v2/sandboxes", json=body, headers=once)).json()
        assert again["sandboxID"] == receipt["sandboxID"]
        listed = (await http.get("/snapshots")).json()
        assert listed == [named.json()]
    await second.aclose()


async def test_over_tcp_the_control_plane_needs_the_key(daemon: Daemon) -> None:
    guarded = RequireApiKey(daemon.app, "e2b_key")
    transport = httpx.ASGITransport(guarded)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as http:
        for headers in ({}, {"X-API-Key": "wrong"}):
            refused = await http.get("/v2/sandboxes", headers=headers)
            assert refused.status_code == 401
            assert "X-API-Key" in refused.json()["message"]
        assert (await http.get("/sandboxd/health")).status_code == 200
        http.headers["X-API-Key"] = "e2b_key"
        sandbox = await create(http)
        del http.headers["X-API-Key"]
        assert (await http.get("/health", headers=sandbox.headers())).status_code == 204


async def test_the_engine_says_what_it_can(http: httpx.AsyncClient) -> None:
    info = (await http.get("/sandboxd/engine")).json()
    assert info["engine"] == "scripted"
    assert info["capabilities"]["pause"] is True
    assert info["notes"]["pause"] == "kept in memory"
    assert info["capabilities"]["template_builds"] is False
    assert len(info["id"]) == 32
    assert (await http.get("/sandboxd/engine")).json()["id"] == info["id"]


async def test_metrics_are_sampled_and_cut_to_the_range(http: httpx.AsyncClient) -> None:
    sandbox = await create(http)
    path = f"/sandboxes/{sandbox.id}/metrics"

    async def samples() -> list[dict[str, Any]]:
        return (await http.get(path)).json()  # type: ignore[no-any-return]

    found = await until(samples)
    assert found[0]["memTotal"] == 2
    at = found[0]["timestampUnix"]
    assert (await http.get(path, params={"start": at, "end": at})).json() == found
    assert (await http.get(path, params={"start": 1, "end": 2})).json() == []
    many = await http.get("/sandboxes/metrics", params={"sandbox_ids": f"{sandbox.id},none"})
    assert list(many.json()["sandboxes"]) == [sandbox.id]
    assert (await http.get(path, params={"start": "x"})).status_code == 400
