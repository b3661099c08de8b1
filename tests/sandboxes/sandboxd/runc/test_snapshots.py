"""Snapshots hold all of a sandbox's files, stand on what they need, and are whole or not there."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import secrets

import pytest

from sandboxes.errors import Conflict, InvalidRequest, NotFound
from sandboxes.sandboxd.engines.base import EngineSandboxState
from sandboxes.sandboxd.engines.runc import overlay
from sandboxes.sandboxd.engines.runc.engine import RuncEngine
from sandboxes.sandboxd.engines.runc.records import SnapshotFile
from tests.sandboxes.sandboxd.runc.conftest import Create, OwnEngine, create_in
from tests.sandboxes.sandboxd.runc.shell import Shell

pytestmark = pytest.mark.sandbox


def _new_id() -> str:
    return f"snap-{secrets.token_hex(10)}"


async def _snapshot(shell: Shell) -> str:
    return (await shell.engine.snapshot(shell.id, _new_id())).id


_MAKE = """
set -e
cd /opt && mkdir -p a/b && echo one > a/b/f && ln -s f a/b/link && ln a/b/f a/b/hard
chown 1000:1000 a/b/f && chmod 4750 a/b/f
truncate -s 50M sparse && echo end >> sparse
rm /etc/debian_version
rm -r /usr/share/perl5 && mkdir /usr/share/perl5 && touch /usr/share/perl5/new
mv /usr/share/bash-completion /usr/share/moved 2>/dev/null || mv /usr/share/zoneinfo /usr/share/moved
mkfifo a/pipe
python3 -c 'import os; os.setxattr("a/b/f", "user.note", b"hello")'
"""
_LOOK = """
cd /opt; stat -c '%n %u:%g %a %h %s' a/b/f a/b/link a/b/hard sparse a/pipe
readlink a/b/link; cat a/b/hard; ls -A /usr/share/perl5; ls /etc/debian_version; ls /usr/share/moved | head -n 3
python3 -c 'import os; print(os.getxattr("a/b/f", "user.note"))'
test $(du -k sparse | cut -f1) -lt 1000 && echo still sparse
"""


async def test_every_kind_of_change_is_kept(shell: Shell, create: Create) -> None:
    done = await shell.sh(_MAKE)
    assert done.code == 0, done.stderr
    before = await shell.sh(_LOOK)
    assert "still sparse" in before.stdout
    snapshot = await _snapshot(shell)
    after = await (await create(of=snapshot)).sh(_LOOK)
    assert (after.stdout, after.stderr) == (before.stdout, before.stderr)
    assert "new\n" in after.stdout
    assert "debian_version" not in after.stdout


async def test_source_goes_on_and_snapshot_outlives_it(shell: Shell, create: Create) -> None:
    process = await shell.start("sh", "-c", "echo 1 > /tmp/v; sleep 0.5; sleep 60")
    await shell.sh("until test -e /tmp/v; do sleep 0.01; done")
    snapshot = await _snapshot(shell)
    await shell.sh("echo 2 > /tmp/v")
    assert await shell.engine.state(shell.id) is EngineSandboxState.RUNNING
    await process.kill_tree()
    await shell.engine.destroy(shell.id)
    copy = await create(of=snapshot)
    assert (await copy.run("cat", "/tmp/v")).stdout == "1\n"
    assert "sleep" not in (await copy.run("ps", "ax")).stdout


async def test_paused_sandbox_stays_paused(shell: Shell) -> None:
    await shell.engine.pause(shell.id)
    await _snapshot(shell)
    assert await shell.engine.state(shell.id) is EngineSandboxState.PAUSED
    with pytest.raises(Conflict):
        await shell.run("true")
    await shell.engine.resume(shell.id)
    assert (await shell.run("true")).code == 0


async def test_sandboxes_of_one_snapshot_do_not_see_each_other(
    shell: Shell, create: Create
) -> None:
    await shell.sh("echo base > /tmp/f")
    snapshot = await _snapshot(shell)
    one, two = await create(of=snapshot), await create(of=snapshot)
    await one.sh("echo one > /tmp/f; rm /etc/hosts; echo x >> /etc/resolv.conf")
    assert (await two.run("cat", "/tmp/f")).stdout == "base\n"
    assert two.id in (await two.run("cat", "/etc/hosts")).stdout
    assert (await shell.run("cat", "/tmp/f")).stdout == "base\n"


async def test_deleted_snapshot_is_kept_for_those_that_stand_on_it(
    engine: RuncEngine, shell: Shell, create: Create
) -> None:
    await shell.sh("echo 1 > /tmp/one")
    first = await _snapshot(shell)
    middle = await create(of=first)
    await middle.sh("echo 2 > /tmp/two")
    second = await _snapshot(middle)
    await engine.delete_snapshot(first)
    await engine.delete_snapshot(first)
    assert first not in {s.id for s in await engine.snapshots()}
    with pytest.raises(InvalidRequest):
        await create(of=first)

    top = await create(of=second)
    assert (await top.sh("cat /tmp/one /tmp/two")).stdout == "1\n2\n"
    folder = engine.data_dir / "snapshots"
    await engine.delete_snapshot(second)
    await engine.destroy(middle.id)
    assert (folder / first).exists()
    assert (await top.sh("cat /tmp/one /tmp/two")).stdout == "1\n2\n"
    await engine.destroy(top.id)
    await engine.settled()
    assert not (folder / first).exists()
    assert not (folder / second).exists()


async def test_template_in_use_is_not_deleted(engine: RuncEngine, image: str, shell: Shell) -> None:
    with pytest.raises(Conflict, match=shell.id):
        await engine.delete_template(image)
    assert image in {t.id for t in await engine.templates()}


async def test_record(engine: RuncEngine, image: str, shell: Shell, create: Create) -> None:
    await shell.sh("head -c 3000000 /dev/urandom > /tmp/f")
    record = await engine.snapshot(shell.id, _new_id())
    assert record.source_sandbox_id == shell.id
    assert record.base_template_id == image
    assert 3_000_000 <= record.size_bytes < 3_300_000
    assert record in await engine.snapshots()
    again = await engine.snapshot((await create(of=record.id)).id, _new_id())
    assert again.base_template_id == image
    with pytest.raises(Conflict):
        await engine.snapshot(shell.id, record.id)
    with pytest.raises(NotFound):
        await engine.snapshot("nosuchsandbox", _new_id())


async def test_unknown_image_is_refused(create: Create) -> None:
    with pytest.raises(InvalidRequest):
        await create(of="snap-doesnotexist")


async def test_deep_chains_are_flattened(
    create: Create, monkeypatch: pytest.MonkeyPatch, image: str, engine: RuncEngine
) -> None:
    monkeypatch.setattr(overlay, "MAX_LAYERS", 4)
    shell = await create()
    for n in range(6):
        await shell.sh(f"echo {n} > /tmp/f{n}; rm -f /tmp/f{n - 3}")
        shell = await create(of=await _snapshot(shell))
        record = json.loads((engine.data_dir / "sandboxes" / shell.id / "engine.json").read_text())
        assert len(record["layers"]) <= 4
    done = await shell.sh(
        "cd /tmp; echo f*; id -un; python3 -c 'print(6*7)'; stat -c %u /home/user", user="user"
    )
    assert done.stdout.split() == ["f3", "f4", "f5", "user", "42", "1000"]
    with pytest.raises(Conflict):
        await engine.delete_template(image)


async def test_twenty_layers_mount(create: Create) -> None:
    shell = await create()
    for n in range(overlay.MAX_LAYERS - 1):
        await shell.sh(f"echo {n} > /tmp/f{n}")
        shell = await create(of=await _snapshot(shell))
    assert (await shell.sh("cat /tmp/f* | wc -l")).stdout == f"{overlay.MAX_LAYERS - 1}\n"


async def test_cancelled_snapshot_is_whole_or_gone(engine: RuncEngine, shell: Shell) -> None:
    await shell.sh("head -c 50000000 /dev/zero > /tmp/f")
    task = asyncio.create_task(engine.snapshot(shell.id, _new_id()))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await shell.run("true")).code == 0
    await engine.settled()
    assert not [p for p in (engine.data_dir / "snapshots").iterdir() if p.name[0] == "."]


async def test_snapshot_that_a_reboot_cut_short_is_refused(
    own_engine: OwnEngine, image: str
) -> None:
    async with own_engine() as engine:
        shell = await create_in(engine, image)
        whole = (await engine.snapshot(shell.id, _new_id())).id
        broken = (await engine.snapshot(shell.id, _new_id())).id
        await engine.settled()
        path = engine.data_dir / "snapshots" / broken / "snapshot.json"
        found = SnapshotFile.load(path)
        assert found.synced
        dataclasses.replace(found, synced=False, boot_id="an earlier one").save(path)
        half = engine.data_dir / "snapshots" / ".new-snap-x-1234"
        (half / "diff").mkdir(parents=True)
        almost = engine.data_dir / "snapshots" / ".new-snap-y-1234"
        (almost / "diff").mkdir(parents=True)
        dataclasses.replace(found, id="snap-y").save(almost / "snapshot.json")
        await engine.aclose()

        await engine.start()
        assert [s.id for s in await engine.snapshots()] == [whole]
        with pytest.raises(InvalidRequest, match="make it again"):
            await create_in(engine, broken)
        await engine.delete_snapshot(broken)
        await engine.settled()
        assert not half.exists()
        assert not almost.exists()
        assert not path.exists()
