"""File work in threads: one bounded pool for all sandboxes, so that a slow disk or a huge tree
delays other file work at worst, and never the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from sandboxes.sandboxd.engines.runc.filesystem.failures import translated
from sandboxes.sandboxd.engines.runc.waiting import outcome

__all__ = ["in_thread"]

P = ParamSpec("P")
T = TypeVar("T")

_pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="sandbox-files")


async def in_thread(path: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking work on `path`; OSErrors arrive as `sandboxes.errors`.

    Returns only when the thread has let go, also if cancelled: the caller may then close the
    descriptors that it lent.
    """
    loop = asyncio.get_running_loop()
    future = loop.run_in_executor(_pool, lambda: function(*args, **kwargs))
    with translated(path):
        return await outcome(future)
