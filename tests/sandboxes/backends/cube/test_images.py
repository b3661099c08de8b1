"""Snapshots and templates of a Cube cluster, and telling them apart."""

from __future__ import annotations

import pytest

from sandboxes.backends.cube.client import CubeClient
from sandboxes.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    TimedOut,
    Unsupported,
)
from sandboxes.testing import SandboxFactory
from sandboxes.testing.base import unique
from tests.sandboxes.backends.fake_cube import FakeCube

pytestmark = pytest.mark.sandbox


async def test_09_10_templates_are_listed_without_snapshots_living_or_dead(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory, template: str
) -> None:
    assert client.snapshots is not None
    assert client.templates is not None
    cube.faults.deleted_stay_in_templates = True
    cube.faults.extra_template_items = [
        {"templateID": "tpl-new", "status": "BUILDING", "aliases": ["next"], "names": []},
        {"templateID": "tpl-bad", "status": "FAILED", "lastError": "probe failed", "names": []},
    ]
    box = await sandbox()
    living = await client.snapshots.create(box.id, name="living")
    dead = await client.snapshots.create(box.id, name="dead")
    await client.snapshots.delete(dead.id)
    listed = {item.id: item async for item in client.templates.list()}
    assert template in listed
    assert not {living.id, dead.id} & set(listed)
    assert listed["tpl-new"].status == "building"
    assert (listed["tpl-bad"].status, listed["tpl-bad"].error) == ("failed", "probe failed")
    with pytest.raises(NotFound):
        await client.templates.get(living.id)
    await client.snapshots.delete(living.id)


async def test_12_a_snapshot_in_use_is_a_conflict_however_it_is_said(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    assert client.snapshots is not None
    taken = await client.snapshots.create((await sandbox()).id, name="used")
    for status, text in (
        (409, "operation in progress"),
        (500, "CubeMaster returned error code 130409: busy"),
        (400, "there are sandboxes using it"),
        (500, "cannot delete template: paused sandbox"),
    ):
        cube.faults.answer("delete_image", status, text)
        with pytest.raises(Conflict):
            await client.snapshots.delete(taken.id)
    cube.faults.answer("delete_image", 408)
    with pytest.raises(TimedOut):
        await client.snapshots.delete(taken.id)
    cube.faults.answer("delete_image", 408, after=True)
    await client.snapshots.delete(taken.id)


async def test_16_a_name_is_no_id(client: CubeClient, sandbox: SandboxFactory) -> None:
    assert client.snapshots is not None
    taken = await client.snapshots.create((await sandbox()).id, name="my-name")
    assert taken.id.startswith("snap-")
    assert taken.names == ("my-name",)
    with pytest.raises(InvalidRequest):
        await sandbox(template="my-name")
    with pytest.raises(InvalidRequest, match="not the name"):
        await client.snapshots.delete("my-name")
    await client.snapshots.delete(taken.id)


@pytest.mark.parametrize("fault", ["repeat_page_token", "empty_token_restarts"])
async def test_page_tokens_that_loop_end(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory, fault: str
) -> None:
    assert client.snapshots is not None
    box = await sandbox()
    made = [await client.snapshots.create(box.id, name=f"n{i}") for i in range(3)]
    setattr(cube.faults, fault, True)
    listed = [item.id async for item in client.snapshots.list(sandbox_id=box.id)]
    assert sorted(listed) == sorted(item.id for item in made)
    queries = [str(call.url.query) for call in cube.control_calls if call.url.path == "/snapshots"]
    assert len(queries) <= 3
    assert not any(query.endswith("nextToken=") for query in queries)
    cube.faults.reset()
    for item in made:
        await client.snapshots.delete(item.id)


async def test_only_ready_snapshots_are_listed(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    assert client.snapshots is not None
    box = await sandbox()
    taken = await client.snapshots.create(box.id, name="x")
    for status in ("CREATING", "FAILED", "DELETING"):
        cube.cluster.snapshots[taken.id].status = status
        assert [item.id async for item in client.snapshots.list(sandbox_id=box.id)] == []
    cube.cluster.snapshots[taken.id].status = "ready"
    assert [item.id async for item in client.snapshots.list(sandbox_id=box.id)] == [taken.id]
    await client.snapshots.delete(taken.id)


async def test_a_snapshot_whose_answer_is_lost_is_found_by_its_name(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    assert client.snapshots is not None
    box, name = await sandbox(), f"planned-{unique()}"
    cube.faults.answer("snapshot", 408, after=True)
    taken = await client.snapshots.create(box.id, name=name)
    assert taken.names == (name,)
    cube.faults.answer("snapshot", 408)
    with pytest.raises(TimedOut):
        await client.snapshots.create(box.id, name="other")
    await client.snapshots.delete(taken.id)


async def test_a_snapshot_right_after_create_is_tried_again(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    assert client.snapshots is not None
    box = await sandbox()
    cube.faults.answer("snapshot", 409, "operation in progress", times=2)
    taken = await client.snapshots.create(box.id, name="x")
    await client.snapshots.delete(taken.id)


async def test_25_what_files_only_snapshots_cannot_do_is_not_tried_again(
    client: CubeClient, cube: FakeCube, sandbox: SandboxFactory
) -> None:
    cube.faults.answer("create", 500, "snapshot_filesystem_only_rootfs_unsupported")
    with pytest.raises(Unsupported):
        await sandbox()
    assert len(cube.paths("POST")) == 1


async def test_a_template_that_is_there_is_rebuilt_and_its_progress_told(
    client: CubeClient, cube: FakeCube, template: str
) -> None:
    assert client.templates is not None
    begun = await client.templates.ensure(template, rebuild=True)
    assert begun.status == "building"
    job = cube.cluster.template_jobs[template]
    job["progress"] = 40
    told = await client.templates.build_status(template)
    assert (told.status, told.fraction, told.step) == ("building", 0.4, "pulling")
    job |= {"status": "FAILED", "message": "probe: connection refused"}
    told = await client.templates.build_status(template)
    assert (told.status, told.error) == ("failed", "probe: connection refused")
    job["status"] = "READY"
    told = await client.templates.build_status(template)
    assert (told.status, told.template_id) == ("ready", template)
    cube.cluster.template_jobs.clear()
    assert await client.templates.ensure(template) == told


async def test_a_missing_template_is_told_with_the_mend(client: CubeClient) -> None:
    assert client.templates is not None
    with pytest.raises(NotFound, match="from an image that carries envd"):
        await client.templates.ensure("nowhere")
