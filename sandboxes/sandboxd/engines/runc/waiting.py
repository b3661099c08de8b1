"""Waiting for work in a thread that cannot be interrupted."""

from __future__ import annotations

import asyncio
from typing import TypeVar

__all__ = ["outcome"]

T = TypeVar("T")


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
