"""Points about snapshots, and about lists that end."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

from sandboxes.checklist.run import Failed, Run
from sandboxes.errors import NotFound
from sandboxes.types import (
    ListFilter,
)

__all__ = ["lists_end_and_deletes_repeat", "source_stays_usable", "starts_from_a_snapshot"]

_SNAPSHOT_BOUND = 20_000


async def starts_from_a_snapshot(run: Run) -> None:
    box = await run.sandbox()
    mark = uuid.uuid4().hex
    await run.text(box, f"echo {mark} > /home/user/mark")
    snapshot = await run.snapshot(box, f"check-{mark[:12]}")
    run.note(f"snapshot {snapshot} of sandbox {box.id}")
    second = await run.sandbox(template=snapshot)
    found = await run.text(second, "cat /home/user/mark")
    run.expect(found == mark, "a new sandbox from its id has the file", "The file is missing.")
    if run.client.templates is None:
        run.note("templates are not listed here")
        return
    listed = [item.id async for item in run.client.templates.list()]
    run.expect(
        snapshot not in listed,
        f"{len(listed)} templates are listed, and the snapshot is not among them",
        "The snapshot is listed among the templates, where somebody would choose it as a base.",
    )


async def source_stays_usable(run: Run) -> None:
    box = await run.sandbox()
    await run.snapshot(box, f"check-{uuid.uuid4().hex[:12]}")
    run.expect(
        await run.text(box, "echo usable") == "usable",
        "the source runs commands after its snapshot",
        "The source of the snapshot runs no commands any more.",
    )
    if not run.client.capabilities.pause:
        run.note("snapshots of a paused sandbox: this backend can't pause")
        return
    await run.pause(box)
    taken = await run.snapshot(box, f"check-{uuid.uuid4().hex[:12]}")
    run.note(f"a paused sandbox gave snapshot {taken}")
    awake = await run.wake(box)
    run.expect(
        await run.text(awake, "echo awake") == "awake", "it woke afterwards", "It doesn't wake."
    )


async def lists_end_and_deletes_repeat(run: Run) -> None:
    box = await run.sandbox()
    name = f"check-{uuid.uuid4().hex[:12]}"
    if run.client.capabilities.snapshots:
        taken = await run.store.create(box.id, name=name)
        run.stack.push_async_callback(run.delete_snapshot, taken.id)
        run.expect(
            any(name in label for label in taken.names) or name in taken.id,
            f"the name asked for comes back in {', '.join(taken.names) or taken.id}",
            f"The name {name} does not come back, so a lost snapshot could not be found again.",
        )
        run.note(f"{await _count(run.store.list())} snapshots are listed, and the list ends")
        await run.store.delete(taken.id)
        await run.store.delete(taken.id)
        run.note("deleting a snapshot twice is fine")
    run.note(
        f"{await _count(run.client.list(ListFilter()))} sandboxes are listed, and the list ends"
    )
    await run.client.delete(box.id)
    try:
        await run.client.delete(box.id)
    except NotFound:
        run.note("deleting a sandbox twice says that it is gone")
    else:
        run.note("deleting a sandbox twice is fine")


async def _count(items: AsyncIterator[object]) -> int:
    number = 0
    async for _ in items:
        number += 1
        if number > _SNAPSHOT_BOUND:
            raise Failed(f"The list has more than {_SNAPSHOT_BOUND} entries, or never ends.")
    return number
