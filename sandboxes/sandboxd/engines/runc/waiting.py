"""Blocking work in threads, which cannot be interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["outcome", "run_to_end"]

P = ParamSpec("P")
T = TypeVar("T")


async def run_to_end(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """As `asyncio.to_thread`, but that a cancelled caller waits for the thread: nothing that it
    then undoes is done afterwards."""
    return await outcome(asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs)))


async def outcome(future: asyncio.Future[T]) -> T:
    """The future's result. Returns only when the work is over, also if cancelled: what was lent to
    it may be closed then, and what it made is there to be undone."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:
                continue
        if not future.cancelled():
            future.exception()  # retrieved: the cancellation is what the caller hears of
        raise
