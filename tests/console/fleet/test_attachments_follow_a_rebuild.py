"""A file that is handed in, or taken back, while the session's sandbox is being replaced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from console.fleet import attachments, sessions
from console.fleet.models import Attachment
from console.fleet.runtime import Runtime
from console.tenants.models import Space
from sandboxes.testing.simulated import SimulatedProvider
from tests.console.fleet.loop import ALICE, in_loop, resolve
from tests.console.fleet.test_attachments import chunks, in_sandbox


class Gate:
    """Where somebody is held up until the test lets them go on."""

    def __init__(self) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

    async def hold(self) -> None:
        if not self.reached.is_set():
            self.reached.set()
            await asyncio.wait_for(self.opened.wait(), 20)


@asynccontextmanager
async def rebuilding(
    runtime: Runtime, space: Space, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Gate]:
    """The session's sandbox is replaced: the old one is gone, and the new one has asked what is staged and
    is not bound yet, until the gate is opened."""
    gate, restore = Gate(), attachments.restore

    async def slow(**options: Any) -> int:
        restored = await restore(**options)
        await gate.hold()
        return restored

    monkeypatch.setattr(attachments, "restore", slow)
    await runtime.sessions.mark_stale(tenant=space.tenant_id, space=space.pk, why="a new release")
    rebuild = asyncio.create_task(resolve(runtime, space))
    await asyncio.wait_for(gate.reached.wait(), 20)
    yield gate
    gate.opened.set()
    await rebuild


def stage(runtime: Runtime, space: Space, data: bytes) -> asyncio.Task[Attachment]:
    return asyncio.create_task(
        sessions.stage(
            runtime=runtime,
            space=space,
            session_id="talk",
            name="a",
            data=chunks(data),
            actor=ALICE,
        )
    )


@pytest.mark.parametrize("before", [None, b"older"], ids=["new", "replaced"])
@pytest.mark.parametrize("held_up", ["while it is written", "before its row"])
@in_loop
async def test_a_file_reaches_the_sandbox_that_is_made_meanwhile(
    space: Space,
    account: SimulatedProvider,
    monkeypatch: pytest.MonkeyPatch,
    held_up: str,
    before: bytes | None,
) -> None:
    async with Runtime() as runtime:
        old = (await resolve(runtime, space)).sandbox.id
        if before is not None:
            await stage(runtime, space, before)
        upload_at = Gate()
        if held_up == "while it is written":

            async def intercept(op: str, phase: str, sandbox_id: str) -> None:
                if (op, phase, sandbox_id) == ("files.write", "after", old):
                    await upload_at.hold()

            account.intercept = intercept
        else:
            write = Attachment.objects.aupdate_or_create

            async def slow(**options: Any) -> Any:
                await upload_at.hold()
                return await write(**options)

            monkeypatch.setattr(Attachment.objects, "aupdate_or_create", slow)
        upload = stage(runtime, space, b"handed in")
        await asyncio.wait_for(upload_at.reached.wait(), 20)
        async with rebuilding(runtime, space, monkeypatch):
            upload_at.opened.set()
            await asyncio.sleep(0)
        await upload
        new = (await resolve(runtime, space)).sandbox.id

    assert new != old
    assert in_sandbox(account) == {"/workspace/input/a": b"handed in"}


@in_loop
async def test_a_file_that_is_taken_back_does_not_come_back(
    space: Space, account: SimulatedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    row_is_gone, in_present = asyncio.Event(), attachments._in_present

    async def noted(*args: Any, **options: Any) -> str:
        row_is_gone.set()
        return await in_present(*args, **options)

    async with Runtime() as runtime:
        await stage(runtime, space, b"handed in")
        monkeypatch.setattr(attachments, "_in_present", noted)
        async with rebuilding(runtime, space, monkeypatch):
            taken_back = asyncio.create_task(
                sessions.unstage(
                    runtime=runtime, space=space, session_id="talk", name="a", actor=ALICE
                )
            )
            await asyncio.wait_for(row_is_gone.wait(), 20)
        assert await taken_back

    assert in_sandbox(account) == {}
