"""Following a build's log while it is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from skills.models import Build, BuildLogLine

__all__ = ["follow"]

POLL_S = 0.4
QUIET_S = 15.0
_BATCH = 500


async def follow(build_id: str, *, after: int = 0) -> AsyncGenerator[BuildLogLine | None, None]:
    """Its lines after that one, as they are stored, until the build is over and all of them were given.
    None whenever there was nothing for a while, so that a connection can be kept open."""
    quiet_s = 0.0
    while True:
        # The state first: lines written before the end are then surely seen.
        finished = (await Build.objects.only("state").aget(pk=build_id)).is_finished
        found = [
            line
            async for line in BuildLogLine.objects.filter(build=build_id, pk__gt=after)[:_BATCH]
        ]
        for line in found:
            after, quiet_s = line.pk, 0.0
            yield line
        if finished and not found:
            return
        if len(found) == _BATCH:
            continue
        if quiet_s >= QUIET_S:
            quiet_s = 0.0
            yield None
        if not finished:
            await asyncio.sleep(POLL_S)
            quiet_s += POLL_S
