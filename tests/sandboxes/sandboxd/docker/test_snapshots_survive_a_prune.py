"""A release is never lost: whatever is pruned from Docker, it starts with the same digest again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import docker
import pytest

from sandboxes.errors import Conflict, InvalidRequest
from sandboxes.sandboxd.engines.docker import snapshots
from sandboxes.sandboxd.engines.docker.api import Api
from sandboxes.sandboxd.engines.docker.archive import Archive
from sandboxes.sandboxd.engines.docker.engine import DockerEngine
from tests.sandboxes.sandboxd.docker.conftest import Create, OwnEngine, container_of, create_in
from tests.sandboxes.sandboxd.runc.shell import Shell

pytestmark = pytest.mark.docker


def prune_images(witness: docker.DockerClient) -> None:
    """docker image prune --all"""
    witness.images.prune(filters={"dangling": False})


def prune_everything(witness: docker.DockerClient) -> None:
    """docker system prune --all"""
    witness.containers.prune()
    prune_images(witness)


def image_ids(witness: docker.DockerClient) -> set[str]:
    return {image.id for image in witness.images.list(all=True)}


async def snapshot_of(engine: DockerEngine, shell: Shell, number: int = 1) -> str:
    snapshot_id = f"snap-{number:020}"
    await engine.snapshot(shell.id, snapshot_id)
    return snapshot_id


async def test_an_image_prune_takes_nothing(
    engine: DockerEngine, create: Create, witness: docker.DockerClient
) -> None:
    first = await create()
    await first.sh("echo kept > /opt/tool")
    snapshot = await snapshot_of(engine, first)
    await engine.settled()
    await engine.destroy(first.id)
    before = image_ids(witness)
    prune_images(witness)
    assert image_ids(witness) == before
    assert (await (await create(of=snapshot)).run("cat", "/opt/tool")).stdout == "kept\n"


async def test_a_system_prune_is_made_good_with_the_same_digest(
    engine: DockerEngine, create: Create, witness: docker.DockerClient
) -> None:
    first = await create()
    await first.sh("echo one > /opt/one; rm /etc/debian_version; chown user /opt/one")
    lower = await snapshot_of(engine, first, 1)
    second = await create(of=lower)
    await second.sh("echo two > /opt/two")
    upper = await snapshot_of(engine, second, 2)
    await engine.settled()
    for shell in (first, second):
        await engine.destroy(shell.id)
    digest = witness.images.get(f"skillyard-snapshot:{upper}").id
    prune_everything(witness)
    assert image_ids(witness) == set()
    restored = await create(of=upper)
    shown = await restored.sh("cat /opt/one /opt/two; stat -c %U /opt/one; ls /etc/debian_version")
    assert shown.stdout == "one\ntwo\nuser\n"
    assert container_of(witness, restored).image.id == digest
    assert (await (await create(of=lower)).run("cat", "/opt/one")).stdout == "one\n"
    assert (await (await create()).run("true")).code == 0
    await engine.destroy(restored.id)
    prune_images(witness)
    assert (await (await create(of=upper)).run("cat", "/opt/two")).stdout == "two\n"


async def test_an_image_prune_before_it_is_copied_takes_nothing(
    engine: DockerEngine,
    create: Create,
    witness: docker.DockerClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copying = asyncio.Event()
    save = Archive.save

    async def later(archive: Archive, api: Api, image_id: str) -> None:
        await copying.wait()
        await save(archive, api, image_id)

    monkeypatch.setattr(Archive, "save", later)
    first = await create()
    await first.sh("echo kept > /opt/tool")
    snapshot = await snapshot_of(engine, first)
    await engine.destroy(first.id)
    prune_images(witness)
    copying.set()
    await engine.settled()
    prune_everything(witness)
    assert (await (await create(of=snapshot)).run("cat", "/opt/tool")).stdout == "kept\n"


async def test_a_prune_right_after_the_commit_has_it_made_again(
    engine: DockerEngine,
    create: Create,
    witness: docker.DockerClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commits: list[str] = []
    commit = Api.commit

    async def pruned(api: Api, container: str, **options: Any) -> str:
        commits.append(made := await commit(api, container, **options))
        if len(commits) == 1:
            await asyncio.to_thread(prune_images, witness)
        return made

    monkeypatch.setattr(Api, "commit", pruned)
    first = await create()
    await first.sh("echo kept > /opt/tool")
    snapshot = await snapshot_of(engine, first)
    assert len(commits) == 2
    await engine.settled()
    assert (await (await create(of=snapshot)).run("cat", "/opt/tool")).stdout == "kept\n"


async def test_a_prune_right_after_the_answer_has_it_made_again_though_its_sandbox_is_to_go(
    engine: DockerEngine,
    create: Create,
    witness: docker.DockerClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pruned, kept = asyncio.Event(), snapshots.SnapshotStore._keep

    async def late(store: Any, record: Any) -> None:
        await pruned.wait()
        await kept(store, record)

    monkeypatch.setattr(snapshots.SnapshotStore, "_keep", late)
    first = await create()
    await first.sh("echo kept > /opt/tool")
    snapshot = await snapshot_of(engine, first)
    going = asyncio.create_task(engine.destroy(first.id))
    starting = asyncio.create_task(create(of=snapshot))
    await asyncio.to_thread(prune_images, witness)
    assert not witness.images.list("skillyard-snapshot")
    pruned.set()
    await going
    assert (await (await starting).run("cat", "/opt/tool")).stdout == "kept\n"
    await engine.settled()
    prune_everything(witness)
    assert (await (await create(of=snapshot)).run("cat", "/opt/tool")).stdout == "kept\n"


async def test_a_copy_that_has_begun_is_finished_whatever_is_pruned(
    engine: DockerEngine,
    create: Create,
    witness: docker.DockerClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    export = Api.export_image

    @contextlib.asynccontextmanager
    async def slowly(api: Api, image: str) -> AsyncIterator[AsyncIterator[bytes]]:
        async def chunks(content: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
            async for chunk in content:
                begun.set()
                await go_on.wait()
                yield chunk

        async with export(api, image) as content:
            yield chunks(content)

    monkeypatch.setattr(Api, "export_image", slowly)
    first = await create()
    await first.sh("head -c 20000000 /dev/urandom > /opt/tool; sha256sum < /opt/tool > /opt/sum")
    snapshot = await snapshot_of(engine, first)
    await begun.wait()
    await engine.destroy(first.id)
    prune_everything(witness)
    assert image_ids(witness) == set()
    go_on.set()
    await engine.settled()
    restored = await create(of=snapshot)
    shown = await restored.sh("sha256sum < /opt/tool | cmp - /opt/sum && echo whole")
    assert shown.stdout == "whole\n"


async def test_one_pruned_before_it_was_copied_is_refused_in_words(
    engine: DockerEngine,
    create: Create,
    witness: docker.DockerClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Archive, "save", never)
    first = await create()
    snapshot = await snapshot_of(engine, first)
    await engine.destroy(first.id)
    prune_everything(witness)
    with pytest.raises(InvalidRequest, match="make it again"):
        await create(of=snapshot)
    await engine.delete_snapshot(snapshot)


async def test_a_copy_that_a_crash_prevented_is_made_by_the_next_start(
    own_engine: OwnEngine, image: str, witness: docker.DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    async with own_engine() as engine:
        with monkeypatch.context() as patch:
            patch.setattr(Archive, "save", never)
            shell = await create_in(engine, image)
            snapshot = await snapshot_of(engine, shell)
            await engine.aclose()
        await engine.start()
        await engine.settled()
        await engine.destroy(shell.id)
        prune_everything(witness)
        assert (await (await create_in(engine, snapshot)).run("true")).code == 0


async def test_deleting_frees_docker_and_the_copy(
    engine: DockerEngine, create: Create, witness: docker.DockerClient
) -> None:
    first = await create()
    before = image_ids(witness)
    layers = engine.data_dir / "archive" / "layers"
    lower = await snapshot_of(engine, first, 1)
    second = await create(of=lower)
    await second.sh("echo two > /opt/two")
    upper = await snapshot_of(engine, second, 2)
    await engine.settled()
    assert len(list(layers.iterdir())) == 3
    await engine.delete_snapshot(lower)
    await engine.delete_snapshot(lower)
    assert [found.id for found in await engine.snapshots()] == [upper]
    with pytest.raises(InvalidRequest):
        await create(of=lower)
    assert (await (await create(of=upper)).run("cat", "/opt/two")).stdout == "two\n"
    await engine.delete_snapshot(upper)
    for sandbox_id in engine.sandbox_ids():
        if sandbox_id != first.id:
            await engine.destroy(sandbox_id)
    assert image_ids(witness) == before
    assert list(layers.iterdir()) == []


async def test_a_commit_that_nobody_heard_of_is_removed_by_the_next_start(
    own_engine: OwnEngine, image: str, witness: docker.DockerClient
) -> None:
    async with own_engine() as engine:
        shell = await create_in(engine, image)
        before = image_ids(witness)
        await snapshot_of(engine, shell)
        await engine.settled()
        await engine.aclose()
        for record in (engine.data_dir / "snapshots").glob("*.json"):
            record.unlink()
        await engine.start()
        assert await engine.snapshots() == []
        assert image_ids(witness) == before


async def test_a_long_chain_is_flattened(
    engine: DockerEngine, create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "_MAX_LAYERS", 2)
    shell = await create()
    await shell.sh("chmod 4755 /opt; ln -s /etc/passwd /opt/link; setfattr -n user.a -v b /opt; :")
    for number in (1, 2):
        await shell.sh(f"echo {number} >> /opt/steps; rm -f /etc/debian_version")
        shell = await create(of=await snapshot_of(engine, shell, number))
    image = engine._sandboxes[shell.id].record.image_id
    assert len((await engine._api.image(image) or {})["RootFS"]["Layers"]) == 1
    shown = await shell.sh("cat /opt/steps; stat -c %a /opt; readlink /opt/link; ls /etc/debian*")
    assert shown.stdout == "1\n2\n4755\n/etc/passwd\n"
    await engine.settled()


async def test_a_template_in_use_is_not_deleted(engine: DockerEngine, shell: Shell) -> None:
    template = engine._sandboxes[shell.id].record.template
    with pytest.raises(Conflict, match=shell.id):
        await engine.delete_template(template)


async def test_a_snapshot_whose_commit_fails_leaves_nothing(
    engine: DockerEngine,
    shell: Shell,
    witness: docker.DockerClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = image_ids(witness)

    async def broken(*_: object) -> AsyncIterator[bytes]:
        raise InvalidRequest("no")

    monkeypatch.setattr(engine._snapshots, "_own_bytes", broken)
    with pytest.raises(InvalidRequest):
        await snapshot_of(engine, shell)
    assert image_ids(witness) == before
    assert await engine.snapshots() == []
