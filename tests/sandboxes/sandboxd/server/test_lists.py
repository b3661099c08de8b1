"""Lists: filters, order, pages. Snapshots and templates by name."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx

from sandboxes.sandboxd.engines.base import TemplateRecord
from sandboxes.wire.encoding import encode_metadata_filter
from tests.sandboxes.sandboxd.server.scripted import NOW, ScriptedEngine


async def create(http: httpx.AsyncClient, template: str = "base", **metadata: str) -> str:
    body = {"templateID": template, "metadata": metadata}
    response = await http.post("/v2/sandboxes", json=body)
    assert response.status_code == 201, response.text
    return str(response.json()["sandboxID"])


async def ids(http: httpx.AsyncClient, path: str = "/v2/sandboxes", **params: Any) -> list[str]:
    response = await http.get(path, params=params)
    assert response.status_code == 200, response.text
    return [item["sandboxID"] for item in response.json()]


async def test_newest_first_and_all_states(http: httpx.AsyncClient) -> None:
    first, second = await create(http), await create(http)
    await http.post(f"/sandboxes/{first}/pause")

    assert await ids(http) == [second, first]
    assert await ids(http, order="asc") == [first, second]
    assert await ids(http, state="paused") == [first]
    assert await ids(http, state="running,paused") == [second, first]
    assert await ids(http, "/sandboxes") == [second]
    response = await http.get("/v2/sandboxes")
    assert response.headers["X-Total-Running"] == "1"
    assert "X-Next-Token" not in response.headers


async def test_metadata_in_each_of_its_encodings(http: httpx.AsyncClient) -> None:
    sandbox = await create(http, **{"a b": "x/y", "k": "v&w=ü%"})
    await create(http, k="other")

    official = encode_metadata_filter({"a b": "x/y", "k": "v&w=ü%"})
    assert await ids(http, metadata=official) == [sandbox]
    assert await ids(http, "/sandboxes", metadata=official) == [sandbox]
    assert await ids(http, metadata="a b=x/y") == [sandbox]
    assert await ids(http, metadata="a%20b=x%2Fy") == [sandbox]
    assert await ids(http, metadata="a%20b=x%2Fy&k=none") == []
    assert (await http.get("/v2/sandboxes", params={"metadata": "x"})).status_code == 400


async def test_pages_neither_repeat_nor_miss(http: httpx.AsyncClient) -> None:
    made = [await create(http) for _ in range(5)]
    for order, expected in (("desc", made[::-1]), ("asc", made)):
        seen: list[str] = []
        params: dict[str, Any] = {"limit": 2, "order": order}
        while True:
            response = await http.get("/v2/sandboxes", params=params)
            page = [item["sandboxID"] for item in response.json()]
            seen += page
            if seen == page and order == "desc":  # one goes, one comes: the pages hold
                late = await create(http)
            if "X-Next-Token" not in response.headers:
                break
            params["nextToken"] = response.headers["X-Next-Token"]
        assert [item for item in seen if item != late] == expected
        await http.delete(f"/sandboxes/{late}")
    assert (await http.get("/v2/sandboxes", params={"nextToken": "x"})).status_code == 400
    assert (await http.get("/v2/sandboxes", params={"limit": "0"})).status_code == 400
    assert (await http.get("/v2/sandboxes", params={"limit": "5000"})).status_code == 200


async def test_started_after_is_inclusive(http: httpx.AsyncClient) -> None:
    from datetime import datetime

    sandbox = await create(http)
    detail = (await http.get(f"/sandboxes/{sandbox}")).json()
    assert await ids(http, startedAfter=detail["startedAt"]) == [sandbox]
    later = datetime.fromisoformat(detail["startedAt"]) + timedelta(microseconds=1)
    assert await ids(http, startedAfter=later.isoformat()) == []
    naive = await http.get("/v2/sandboxes", params={"startedAfter": "2026-01-01T00:00:00"})
    assert naive.status_code == 400


async def test_template_filter_takes_ids_and_names(
    http: httpx.AsyncClient, engine: ScriptedEngine
) -> None:
    older = await create(http)
    engine.template_records.append(
        TemplateRecord(
            id="base-00000002", name="base", created_at=NOW + timedelta(days=1), size_bytes=1
        )
    )
    newer = await create(http)
    assert engine.specs[newer].image == "base-00000002"
    assert await ids(http, template="base") == [newer, older]
    assert await ids(http, template="base-00000001") == [older]
    assert await ids(http, template="unknown") == []
    assert await ids(http, state="running", template="base:default") == [newer, older]


async def test_snapshots_are_listed_named_used_and_deleted(http: httpx.AsyncClient) -> None:
    source = await create(http)
    path = f"/sandboxes/{source}/snapshots"
    first = (await http.post(path, json={})).json()
    second = await http.post(path, json={"name": "mine"})
    assert second.status_code == 201
    assert second.json()["names"] == ["mine"]

    listed = (await http.get("/snapshots")).json()
    assert [item["snapshotID"] for item in listed] == [
        second.json()["snapshotID"],
        first["snapshotID"],
    ]
    by_name = (await http.get("/snapshots", params={"name": "team/mine:default"})).json()
    assert [item["names"] for item in by_name] == [["mine"]]
    assert (await http.get("/snapshots", params={"sandboxID": "other"})).json() == []
    page = await http.get("/snapshots", params={"limit": 1})
    token = page.headers["X-Next-Token"]
    rest = await http.get("/snapshots", params={"limit": 1, "nextToken": token})
    assert [item["snapshotID"] for item in rest.json()] == [first["snapshotID"]]

    await create(http, first["snapshotID"])
    await create(http, "mine")
    quoted = f"/templates/team%2F{first['snapshotID']}%3Adefault"
    assert (await http.delete(quoted)).status_code == 204
    assert (await http.delete(quoted)).status_code == 404
    refused = await http.post("/v2/sandboxes", json={"templateID": first["snapshotID"]})
    assert refused.status_code == 404


async def test_a_snapshot_cannot_take_a_templates_name(http: httpx.AsyncClient) -> None:
    source = await create(http)
    response = await http.post(f"/sandboxes/{source}/snapshots", json={"name": "base"})
    assert response.status_code == 400
    assert "base" in response.json()["message"]


async def test_templates_and_aliases(http: httpx.AsyncClient) -> None:
    for path in ("/templates", "/v2/templates"):
        (template,) = (await http.get(path)).json()
        assert template["templateID"] == "base-00000001"
        assert template["names"] == ["base"]
    found = (await http.get("/templates/aliases/base")).json()
    assert found == {"templateID": "base-00000001", "public": False}
    assert (await http.get("/templates/aliases/none")).status_code == 404
