"""The eight points that a backend has to keep for sessions and releases to work on it, tried for real.

Each point makes its own sandboxes and deletes them. What a backend says that it can't do is skipped with
its own note: that is a difference, and no failure. What can't be told from here is skipped too, and says why.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping

from sandboxes.checklist.images import (
    lists_end_and_deletes_repeat,
    source_stays_usable,
    starts_from_a_snapshot,
)
from sandboxes.checklist.network import switches_hold
from sandboxes.checklist.run import Check, Failed, Outcome, Point, Run, Skipped
from sandboxes.checklist.sandboxes import (
    envd_answers,
    metadata_finds_it,
    pause_keeps_memory,
    users_and_uploads,
)
from sandboxes.client import SandboxClient
from sandboxes.errors import SandboxError

__all__ = ["POINTS", "POINT_LIMIT_S", "Outcome", "Point", "run_checklist"]

log = logging.getLogger(__name__)

POINT_LIMIT_S = 180.0
_CLEANUP_LIMIT_S = 30.0

POINTS: tuple[tuple[str, str, Check], ...] = (
    ("snapshot_boot", "A sandbox starts from a snapshot's id", starts_from_a_snapshot),
    ("snapshot_source", "The source of a snapshot stays usable", source_stays_usable),
    ("pause", "Pausing keeps files and processes", pause_keeps_memory),
    ("metadata", "Tags come back and find their sandbox", metadata_finds_it),
    ("network", "Both network switches hold, in all four combinations", switches_hold),
    ("users", "Commands run unprivileged, files arrive whole", users_and_uploads),
    ("envd", "The data plane answers", envd_answers),
    ("lists", "Lists end, deletes can be repeated, names come back", lists_end_and_deletes_repeat),
)


async def run_checklist(
    client: SandboxClient, *, template: str, tags: Mapping[str, str]
) -> AsyncGenerator[Point, None]:
    """The points in order, as each is done. `tags` are the owner's, on every sandbox that is made. Raises
    nothing of the backend's trouble."""
    for number, (name, title, check) in enumerate(POINTS, 1):
        yield await _tried(number, name, title, check, Run(client, template, tags))


async def _tried(number: int, name: str, title: str, check: Check, run: Run) -> Point:
    began = time.monotonic()
    outcome, reason, expected = Outcome.PASSED, "", False
    try:
        async with asyncio.timeout(POINT_LIMIT_S):
            await check(run)
    except Skipped as skipped:
        outcome, reason, expected = Outcome.SKIPPED, str(skipped), skipped.expected
    except Failed as failed:
        outcome, reason = Outcome.FAILED, str(failed)
    except SandboxError as error:
        outcome, reason = Outcome.FAILED, error.message
        log.warning("Point %s failed: %s: %s", name, error.kind, error.detail)
    except TimeoutError:
        outcome, reason = Outcome.FAILED, f"It took longer than {POINT_LIMIT_S:.0f} seconds."
    finally:
        # Also when the whole run is cancelled.
        took_s = time.monotonic() - began
        await _clean_up(name, run)
    return Point(
        number=number,
        name=name,
        title=title,
        outcome=outcome,
        evidence=tuple(run.seen),
        reason=reason,
        expected=expected,
        took_s=round(took_s, 3),
    )


async def _clean_up(name: str, run: Run) -> None:
    try:
        async with asyncio.timeout(_CLEANUP_LIMIT_S):
            await run.stack.aclose()
    except TimeoutError:
        log.warning("Cleaning up after point %s took too long; the reaper has the rest", name)
