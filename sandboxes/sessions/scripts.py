"""Running the Lua scripts, and the one place where Redis's failures become ours."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import resources
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import NoScriptError, RedisError

from sandboxes.errors import Unavailable

__all__ = ["Scripts", "store_errors", "text"]

_RETRY_AFTER_S = 2.0


@contextmanager
def store_errors(op: str) -> Iterator[None]:
    """Every failure of Redis is Unavailable: callers fail closed and may try again."""
    try:
        yield
    except (RedisError, OSError, TimeoutError) as error:
        raise Unavailable(
            "The session store (Redis) does not answer; try again in a few seconds.",
            op=op,
            retry_after_s=_RETRY_AFTER_S,
            detail=f"{type(error).__name__}: {error}",
        ) from error


class Scripts:
    """Lua scripts beside this module, by name. Needs Redis 6.2 or later; any client settings do:
    a call ends after `timeout_s` even if the client itself has no timeout."""

    def __init__(self, redis: Redis, *, timeout_s: float) -> None:
        self.redis = redis
        self.timeout_s = timeout_s

    async def run(self, name: str, keys: Sequence[str], args: Sequence[str | int]) -> Any:
        """The script's reply, with text decoded. One round trip once Redis knows the script."""
        source, digest = _load(name)
        arguments = cast("list[str]", [*keys, *args])
        with store_errors(name):
            async with asyncio.timeout(self.timeout_s):
                try:
                    reply = await _awaited(self.redis.evalsha(digest, len(keys), *arguments))
                except NoScriptError:
                    reply = await _awaited(self.redis.eval(source, len(keys), *arguments))
        return text(reply)


def text(reply: Any) -> Any:
    """Decode a reply whichever `decode_responses` the client was made with."""
    if isinstance(reply, bytes):
        return reply.decode()
    if isinstance(reply, list):
        return [text(item) for item in reply]
    return reply


async def _awaited(reply: Any) -> Any:
    # redis-py types its async commands as "awaitable or value".
    return await reply


@cache
def _load(name: str) -> tuple[str, str]:
    source = resources.files(__package__).joinpath(f"{name}.lua").read_text(encoding="utf-8")
    return source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
