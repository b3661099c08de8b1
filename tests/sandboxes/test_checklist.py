"""The eight points: kept by real backends, and seen to be broken by ones that break them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest

from sandboxes import registry
from sandboxes.checklist import POINTS, Outcome, Point, network, run_checklist
from sandboxes.client import SandboxClient
from sandboxes.errors import Unavailable
from sandboxes.testing.base import ids_of
from sandboxes.types import (
    CreateRequest,
    ListFilter,
    Sandbox,
    SandboxInfo,
    SnapshotInfo,
    TemplateInfo,
)
from tests.sandboxes import daemon as daemons
from tests.sandboxes.backends.fake_cube import FakeCube, start

pytestmark = pytest.mark.sandbox

TAGS = {"owner": "checklist"}


@pytest.fixture(scope="module")
async def local(sandboxd: daemons.Daemon) -> AsyncIterator[SandboxClient]:
    async with await registry.open_client("local", {"socket": str(sandboxd.socket)}) as client:
        yield client


@pytest.fixture(scope="module")
def cube(sandboxd: daemons.Daemon) -> Iterator[FakeCube]:
    with start(sandboxd.socket) as fake:
        yield fake


async def tried(client: SandboxClient, template: str) -> dict[str, Point]:
    return {
        point.name: point async for point in run_checklist(client, template=template, tags=TAGS)
    }


async def assert_nothing_left(client: SandboxClient) -> None:
    assert await ids_of(client, ListFilter(metadata=TAGS)) == []
    if client.snapshots is not None:
        assert [item.id async for item in client.snapshots.list()] == []


async def test_the_local_backend_keeps_all_eight(local: SandboxClient, template: str) -> None:
    points = await tried(local, template)
    assert [point.number for point in points.values()] == list(range(1, 9))
    assert {name: point.reason for name, point in points.items() if point.reason} == {}
    for point in points.values():
        assert point.outcome is Outcome.PASSED
        assert point.evidence
        assert point.took_s > 0
    await assert_nothing_left(local)


async def test_a_cube_cluster_keeps_all_eight(cube: FakeCube, template: str) -> None:
    async with await registry.open_client("cube", cube.settings()) as client:
        points = await tried(client, f"tpl-{template}")
        assert {name: point.reason for name, point in points.items() if point.reason} == {}
        await assert_nothing_left(client)


async def test_a_missing_capability_is_expected_and_no_failure(
    local: SandboxClient, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    less = replace(local.capabilities, pause=False, snapshots=False, notes={"pause": "It can't."})
    monkeypatch.setattr(local, "capabilities", less)
    points = await tried(local, template)
    for name in ("pause", "snapshot_boot", "snapshot_source"):
        assert points[name].outcome is Outcome.SKIPPED
        assert points[name].expected
    assert "It can't." in points["pause"].reason
    assert points["lists"].outcome is Outcome.PASSED


async def test_a_dead_backend_fails_each_with_its_sentence(
    local: SandboxClient, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dead(request: CreateRequest) -> Sandbox:
        raise Unavailable("It is down; start it.")

    monkeypatch.setattr(local, "create", dead)
    points = await tried(local, template)
    assert len(points) == len(POINTS)
    assert {point.reason for point in points.values()} == {"It is down; start it."}


async def test_broken_promises_are_seen(
    local: SandboxClient, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One liar for all: it mixes snapshots into templates, forgets tags and names, opens closed networks."""
    create, get = local.create, local.get
    assert local.snapshots is not None
    assert local.templates is not None
    take, templates = local.snapshots.create, local.templates.list

    async def forgets(sandbox_id: str) -> SandboxInfo:
        return replace(await get(sandbox_id), metadata={})

    async def nameless(sandbox_id: str, *, name: str) -> SnapshotInfo:
        return replace(await take(sandbox_id, name=name), names=())

    async def mixed() -> AsyncIterator[TemplateInfo]:
        async for item in templates():
            yield item
            async for snapshot in local.snapshots.list():  # type: ignore[union-attr]
                yield replace(item, id=snapshot.id)

    async def opened(request: CreateRequest) -> Sandbox:
        return await create(replace(request, network=replace(request.network, inbound=True)))

    lies: list[tuple[Any, str, Any]] = [
        (local, "get", forgets),
        (local, "create", opened),
        (local.snapshots, "create", nameless),
        (local.templates, "list", mixed),
    ]
    for target, name, lie in lies:
        monkeypatch.setattr(target, name, lie)
    points = await tried(local, template)
    failed = {name for name, point in points.items() if point.outcome is Outcome.FAILED}
    assert failed == {"snapshot_boot", "metadata", "network", "lists"}
    assert "among the templates" in points["snapshot_boot"].reason
    assert "closed port answers 200" in points["network"].reason
    for point in points.values():
        assert point.reason.endswith((".", "")), point
    monkeypatch.undo()
    await assert_nothing_left(local)


async def test_reaching_the_hosts_network_fails_where_that_is_promised_closed(
    local: SandboxClient, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "_PRIVATE", "echo 10.0.0.1:22")
    monkeypatch.setattr(
        "sandboxes.checklist.POINTS", [point for point in POINTS if point[0] == "network"]
    )
    broken = (await tried(local, template))["network"]
    assert broken.outcome is Outcome.FAILED
    assert "10.0.0.1:22, inside the host's own network" in broken.reason
    notes = {"private_ranges_closed": "Close them on that host."}
    honest = replace(local.capabilities, private_ranges_closed=False, notes=notes)
    monkeypatch.setattr(local, "capabilities", honest)
    told = (await tried(local, template))["network"]
    assert told.outcome is Outcome.PASSED
    seen = next(line for line in told.evidence if "does not promise" in line)
    assert "10.0.0.1:22" in seen
    assert "Close them on that host." in seen
