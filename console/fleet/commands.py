"""Commands whose output is followed while they run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from console.fleet.sessions import LiveSession
from sandboxes.types import ExecEvent, ExecRequest

__all__ = ["streamed"]

KEEP_ALIVE_S = 15.0
_QUEUED_EVENTS = 8


async def streamed(
    opened: LiveSession, command: ExecRequest
) -> AsyncGenerator[ExecEvent | None, None]:
    """The events, and None whenever there was none for a while, so that no proxy hangs up."""
    queue: asyncio.Queue[ExecEvent | Exception | None] = asyncio.Queue(_QUEUED_EVENTS)

    async def pump() -> None:
        try:
            async with opened.client.exec(opened.sandbox, command) as events:
                async for event in events:
                    await queue.put(event)
        except Exception as error:
            await queue.put(error)
        else:
            await queue.put(None)

    # The command belongs to one task, for its deadlines are that task's.
    task = asyncio.create_task(pump())
    try:
        while True:
            try:
                item = await asyncio.wait_for(queue.get(), KEEP_ALIVE_S)
            except TimeoutError:
                yield None
                continue
            if item is None:
                return
            if isinstance(item, Exception):
                raise item
            yield item
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
