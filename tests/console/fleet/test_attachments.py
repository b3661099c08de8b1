"""Attachments: names, limits, replacement, and what is left of them."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from console.fleet import attachments, sessions
from console.fleet.models import Attachment, Session, SessionState
from console.fleet.runtime import Runtime
from console.tenants.models import Space
from sandboxes.errors import InvalidRequest
from sandboxes.testing.simulated import SimulatedProvider
from tests.console.fleet.loop import ALICE, in_loop, resolve


async def chunks(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 1000):
        yield data[start : start + 1000]


async def stage(space: Space, name: str, data: bytes) -> Attachment:
    async with Runtime() as runtime:
        return await sessions.stage(
            runtime=runtime,
            space=space,
            session_id="talk",
            name=name,
            data=chunks(data),
            actor=ALICE,
        )


def in_sandbox(account: SimulatedProvider) -> dict[str, bytes]:
    (sandbox,) = account.live()
    return {path: node.data for path, node in sandbox.files.items() if node.type.value == "file"}


def stored(media: Path) -> list[Path]:
    return sorted(path for path in media.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    "name", ["", ".", "/", "../output/x", "/workspace/output/x", "/etc/passwd", "a\0b", "x" * 501]
)
@in_loop
async def test_a_name_stays_below_the_input_folder(
    space: Space, account: SimulatedProvider, media: Path, name: str
) -> None:
    with pytest.raises(InvalidRequest):
        await stage(space, name, b"x")
    assert (in_sandbox(account), stored(media)) == ({}, [])


@in_loop
async def test_limits_of_a_file_and_of_a_session_leave_nothing_behind(
    space: Space, account: SimulatedProvider, media: Path, settings: Any
) -> None:
    settings.SKILLYARD_ATTACHMENT_MAX_BYTES = 4096
    settings.SKILLYARD_ATTACHMENTS_MAX_BYTES = 6000
    settings.SKILLYARD_ATTACHMENTS_MAX_COUNT = 3
    with pytest.raises(InvalidRequest, match="larger than 4 KiB"):
        await stage(space, "big", b"x" * 4097)
    assert (in_sandbox(account), stored(media)) == ({}, [])
    await stage(space, "one", b"1" * 4096)
    with pytest.raises(InvalidRequest, match="in all; remove some first"):
        await stage(space, "two", b"2" * 2000)
    await stage(space, "one", b"2" * 4096)
    await stage(space, "two", b"")
    await stage(space, "three", b"")
    with pytest.raises(InvalidRequest, match="has 3 attachments"):
        await stage(space, "four", b"")
    assert await Attachment.objects.acount() == 3
    assert in_sandbox(account)["/workspace/input/one"] == b"2" * 4096


@in_loop
async def test_an_upload_that_breaks_off_changes_nothing(
    space: Space, account: SimulatedProvider, media: Path
) -> None:
    await stage(space, "a", b"whole")

    async def broken() -> AsyncIterator[bytes]:
        yield b"ha"
        raise ConnectionResetError

    async with Runtime() as runtime:
        with pytest.raises(ConnectionResetError):
            await sessions.stage(
                runtime=runtime,
                space=space,
                session_id="talk",
                name="a",
                data=broken(),
                actor=ALICE,
            )
    assert in_sandbox(account) == {"/workspace/input/a": b"whole"}
    assert len(stored(media)) == 1


@in_loop
async def test_the_same_content_is_stored_once_and_comes_back_everywhere(
    space: Space, account: SimulatedProvider, media: Path
) -> None:
    await stage(space, "a", b"same")
    await stage(space, "b/c", b"same")
    assert len(stored(media)) == 1
    async with Runtime() as runtime:
        account.vanish((await resolve(runtime, space)).sandbox.id)
        await resolve(runtime, space)
    assert in_sandbox(account) == {
        "/workspace/input/a": b"same",
        "/workspace/input/b/c": b"same",
    }


@in_loop
async def test_content_lost_from_the_storage_does_not_stop_the_session(
    space: Space, account: SimulatedProvider, media: Path
) -> None:
    await stage(space, "lost", b"lost")
    await stage(space, "kept", b"kept")
    (path,) = (path for path in stored(media) if path.read_bytes() == b"lost")
    path.unlink()
    async with Runtime() as runtime:
        account.vanish((await resolve(runtime, space)).sandbox.id)
        await resolve(runtime, space)
    assert in_sandbox(account) == {"/workspace/input/kept": b"kept"}


@in_loop
async def test_half_written_content_is_written_anew(
    space: Space, account: SimulatedProvider, media: Path
) -> None:
    row = await stage(space, "a", b"whole")
    (media / row.stored_as).write_bytes(b"wh")
    await stage(space, "a", b"whole")
    assert (media / row.stored_as).read_bytes() == b"whole"


def test_the_sweep_deletes_what_no_row_names_but_nothing_fresh(
    space: Space, account: SimulatedProvider, media: Path
) -> None:
    async_to_sync(stage)(space, "a", b"old")
    async_to_sync(stage)(space, "a", b"new")
    assert len(stored(media)) == 2
    assert attachments.sweep() == 0, "it may belong to an upload that is under way"
    hours_ago = time.time() - 7200
    for path in stored(media):
        os.utime(path, (hours_ago, hours_ago))
    assert attachments.sweep() == 1
    (left,) = stored(media)
    assert left.read_bytes() == b"new"
    # A session that ended while the storage was away, and one whose row is gone.
    Session.objects.update(state=SessionState.DESTROYED)
    assert attachments.sweep() == 1
    assert not Attachment.objects.exists()


@in_loop
async def test_destroying_the_session_forgets_them(
    space: Space, account: SimulatedProvider, media: Path
) -> None:
    await stage(space, "a", b"x")
    async with Runtime() as runtime:
        await sessions.destroy(runtime=runtime, space=space, session_id="talk", actor=ALICE)
        await resolve(runtime, space)
    assert (in_sandbox(account), stored(media)) == ({}, [])
