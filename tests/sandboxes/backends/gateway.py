"""A console whose gateway stands before a sandboxd, as a backend of the contract suite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.console.api.server import start
from tests.sandboxes.sessions.world import RedisServer

__all__ = ["gateway_before"]


@contextmanager
def gateway_before(folder: Path, sandboxd_socket: Path, **environ: str) -> Iterator[dict[str, Any]]:
    """The settings of an `e2b` backend that leads through it. Its space lets everything in and out, so that
    the suite's own policies decide."""
    redis = RedisServer(folder)
    redis.start()
    try:
        with start(
            folder,
            redis_socket=redis.socket,
            sandboxd_socket=str(sandboxd_socket),
            TESTED_OPEN="1",
            **environ,
        ) as console:
            yield {
                "api_url": console.url,
                "sandbox_url": console.url,
                "api_key": console.facts["keys"]["e2b"],
                "allow_private": True,
            }
    finally:
        redis.stop()
