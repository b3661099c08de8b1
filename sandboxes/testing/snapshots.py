"""Snapshots: of a running sandbox, and what starts from them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sandboxes.client import SandboxClient, SnapshotStore
from sandboxes.errors import InvalidRequest, NotFound, SandboxError
from sandboxes.testing.base import Contract, SandboxFactory, needs, text_of, unique
from sandboxes.testing.pausing import counter, pausing_of, start_counter
from sandboxes.types import Sandbox, SnapshotInfo

__all__ = ["SnapshotContract"]


class Snapshots:
    """Makes snapshots for one test and deletes them after it."""

    def __init__(self, store: SnapshotStore) -> None:
        self.store = store
        self._made: list[str] = []

    async def take(self, sandbox: Sandbox, name: str = "") -> SnapshotInfo:
        info = await self.store.create(sandbox.id, name=name or f"contract-{unique()}")
        self._made.append(info.id)
        return info

    async def aclose(self) -> None:
        for snapshot_id in reversed(self._made):
            await self.store.delete(snapshot_id)


class SnapshotContract(Contract):
    stands_on = ("snapshots",)

    @pytest.fixture
    async def snapshots(
        self, client: SandboxClient, sandbox: SandboxFactory
    ) -> AsyncIterator[Snapshots]:
        if client.snapshots is None:
            pytest.skip("this backend has no snapshots")
        made = Snapshots(client.snapshots)
        yield made
        await sandbox.aclose()  # first what stands on them
        await made.aclose()

    async def test_a_new_sandbox_starts_from_it(
        self, client: SandboxClient, sandbox: SandboxFactory, snapshots: Snapshots
    ) -> None:
        first = await sandbox()
        await text_of(client, first, "echo installed > /opt/tool; chmod 600 /opt/tool", user="root")
        taken = await snapshots.take(first)
        second = await sandbox(template=taken.id)
        shown = await text_of(
            client, second, "stat -c '%a %U' /opt/tool; cat /opt/tool", user="root"
        )
        assert shown == "600 root\ninstalled\n"

    async def test_the_original_is_still_usable_and_apart(
        self, client: SandboxClient, sandbox: SandboxFactory, snapshots: Snapshots
    ) -> None:
        first = await sandbox()
        await start_counter(client, first)
        token = (await counter(client, first))[0]
        await text_of(client, first, "echo one > /home/user/f")
        taken = await snapshots.take(first)
        assert (await counter(client, first))[0] == token
        await text_of(client, first, "echo two > /home/user/f")
        second = await sandbox(template=taken.id)
        assert await text_of(client, second, "cat /home/user/f") == "one\n"
        await text_of(client, second, "echo three > /home/user/f")
        assert await text_of(client, first, "cat /home/user/f") == "two\n"

    async def test_it_survives_its_source(
        self, client: SandboxClient, sandbox: SandboxFactory, snapshots: Snapshots
    ) -> None:
        first = await sandbox()
        await text_of(client, first, "echo kept > /home/user/f")
        taken = await snapshots.take(first)
        await client.delete(first.id)
        second = await sandbox(template=taken.id)
        assert await text_of(client, second, "cat /home/user/f") == "kept\n"

    async def test_deletions_replacements_and_links_are_kept(
        self, client: SandboxClient, sandbox: SandboxFactory, snapshots: Snapshots
    ) -> None:
        first = await sandbox()
        change = (
            "rm -r /usr/share/doc 2>/dev/null; rm /etc/motd 2>/dev/null; rm /etc/debian_version;"
            "rm -r /etc/skel; mkdir /etc/skel; touch /etc/skel/only;"
            "ln -s /etc/hostname /home/user/link; ln /etc/passwd /etc/passwd-hard;"
            "mkfifo /home/user/pipe; printf x > '/home/user/图 表'"
        )
        await text_of(client, first, change, user="root")
        taken = await snapshots.take(first)
        second = await sandbox(template=taken.id)
        shown = (
            "test ! -e /etc/debian_version && ls -A /etc/skel && readlink /home/user/link &&"
            "test -p /home/user/pipe && cat '/home/user/图 表' &&"
            "test $(stat -c %i /etc/passwd) = $(stat -c %i /etc/passwd-hard) && echo same"
        )
        assert await text_of(client, second, shown, user="root") == ("only\n/etc/hostname\nxsame\n")

    async def test_a_snapshot_of_a_snapshot(
        self, client: SandboxClient, sandbox: SandboxFactory, snapshots: Snapshots
    ) -> None:
        box = await sandbox()
        for step in ("one", "two", "three"):
            await text_of(client, box, f"echo {step} >> /home/user/steps")
            taken = await snapshots.take(box)
            box = await sandbox(template=taken.id)
        assert await text_of(client, box, "cat /home/user/steps") == "one\ntwo\nthree\n"

    async def test_many_start_from_one(
        self, client: SandboxClient, sandbox: SandboxFactory, snapshots: Snapshots
    ) -> None:
        first = await sandbox()
        await text_of(client, first, "echo shared > /home/user/f")
        taken = await snapshots.take(first)
        for number in range(3):
            box = await sandbox(template=taken.id)
            await text_of(client, box, f"echo {number} >> /home/user/f")
            assert await text_of(client, box, "cat /home/user/f") == f"shared\n{number}\n"

    async def test_it_is_listed_by_name_and_source(
        self, client: SandboxClient, sandbox: SandboxFactory, snapshots: Snapshots
    ) -> None:
        first, other = await sandbox(), await sandbox()
        name = f"contract-{unique()}"
        taken = await snapshots.take(first, name)
        await snapshots.take(other)
        listed = {info.id: info async for info in snapshots.store.list(sandbox_id=first.id)}
        assert set(listed) == {taken.id}
        assert any(name in label for label in listed[taken.id].names)
        everything = [info.id async for info in snapshots.store.list()]
        assert taken.id in everything

    async def test_a_deleted_snapshot_is_gone(
        self, client: SandboxClient, sandbox: SandboxFactory, snapshots: Snapshots
    ) -> None:
        taken = await snapshots.take(await sandbox())
        await snapshots.store.delete(taken.id)
        await snapshots.store.delete(taken.id)
        assert taken.id not in [info.id async for info in snapshots.store.list()]
        with pytest.raises(InvalidRequest):
            await sandbox(template=taken.id)

    async def test_what_runs_from_it_outlives_its_deletion_or_forbids_it(
        self, client: SandboxClient, sandbox: SandboxFactory, snapshots: Snapshots
    ) -> None:
        first = await sandbox()
        await text_of(client, first, "echo kept > /home/user/f")
        taken = await snapshots.take(first)
        second = await sandbox(template=taken.id)
        try:
            await snapshots.store.delete(taken.id)
        except SandboxError as error:
            assert error.kind == "conflict"
        assert (
            await text_of(client, second, "cat /home/user/f; python3 -c 'print(1)'") == "kept\n1\n"
        )

    async def test_the_source_must_exist(
        self, client: SandboxClient, box: Sandbox, snapshots: Snapshots
    ) -> None:
        await client.delete(box.id)
        with pytest.raises(NotFound):
            await snapshots.take(box)

    @needs("pause")
    async def test_a_paused_sandbox_stays_paused(
        self, client: SandboxClient, sandbox: SandboxFactory, snapshots: Snapshots
    ) -> None:
        first = await sandbox()
        await text_of(client, first, "echo kept > /home/user/f")
        await pausing_of(client).pause(first.id)
        taken = await snapshots.take(first)
        second = await sandbox(template=taken.id)
        assert await text_of(client, second, "cat /home/user/f") == "kept\n"
        awake = await client.connect(first.id)
        assert await text_of(client, awake, "cat /home/user/f") == "kept\n"

    @needs("snapshot_keeps_processes")
    async def test_processes_go_on_in_the_new_sandbox(
        self, client: SandboxClient, sandbox: SandboxFactory, snapshots: Snapshots
    ) -> None:
        first = await sandbox()
        await start_counter(client, first)
        token = (await counter(client, first))[0]
        second = await sandbox(template=(await snapshots.take(first)).id)
        assert (await counter(client, second))[0] == token
