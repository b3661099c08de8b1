"""Telling a space's sessions that their image or policy has changed."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sandboxes.errors import SandboxError
from sandboxes.sessions.binding import Binding, Stale, read_bindings, scan
from sandboxes.sessions.keys import KeyNames, SessionKey
from sandboxes.sessions.scripts import Scripts

__all__ = ["MarkFailure", "Rollout", "StaleReport", "mark_space_stale"]

_CONCURRENCY = 32


class Rollout(enum.StrEnum):
    NEXT_TURN = "next_turn"
    """Running sessions are rebuilt when their next turn begins."""
    NEW_SESSION = "new_session"
    """Running sessions keep what they have."""


@dataclass(frozen=True, slots=True)
class MarkFailure:
    session: str
    message: str


@dataclass(slots=True, kw_only=True)
class StaleReport:
    """`marked` now, `already` stale before, `fresh` left alone, `failures` still to be marked."""

    marked: int = 0
    already: int = 0
    fresh: int = 0
    failures: list[MarkFailure] = field(default_factory=list)


async def mark_space_stale(
    scripts: Scripts,
    names: KeyNames,
    *,
    tenant: str,
    space: str,
    why: str,
    fresh: Callable[[Binding], bool],
    wait_s: float,
) -> StaleReport:
    # Without the session's lock, on purpose: the mark is one compare-and-set, a resolve reads it
    # with its lock, and one that binds meanwhile asks for the plan again (Resolution._plan_moved).
    # So a session that is busy for a minute costs this loop nothing.
    report = StaleReport()
    mark = Stale(at=datetime.now(UTC), why=why).to_json()
    slots = asyncio.Semaphore(_CONCURRENCY)

    async def mark_one(key: SessionKey, document: str) -> None:
        keys = names.of(key)
        try:
            async with slots, asyncio.timeout(wait_s):
                outcome = await scripts.run(
                    "mark_stale", [keys.binding, keys.stale], [document, mark]
                )
        except (SandboxError, TimeoutError) as error:
            message = str(error) or f"no answer within {wait_s:g} s"
            report.failures.append(MarkFailure(key.session, message))
            return
        if outcome == "marked":
            report.marked += 1
        elif outcome == "already":
            report.already += 1
        # Otherwise it was destroyed or rebuilt meanwhile, from the new plan.

    async for batch in scan(scripts, names, tenant, space):
        stored = await read_bindings(scripts, names, batch)
        async with asyncio.TaskGroup() as group:
            for key, item in zip(batch, stored, strict=True):
                if item is None:
                    continue
                try:
                    binding = item.parse(key)
                except SandboxError as error:
                    report.failures.append(MarkFailure(key.session, str(error)))
                    continue
                if fresh(binding):
                    report.fresh += 1
                else:
                    group.create_task(mark_one(key, item.document))
    return report
