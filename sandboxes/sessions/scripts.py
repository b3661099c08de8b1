"""Running the Lua scripts, and the one place where Redis's failures become ours."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from importlib import resources
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import NoScriptError, RedisError

from sandboxes.errors import Unavailable

__all__ = ["Scripts"]

_RETRY_AFTER_S = 2.0


@asynccontextmanager
async def _store_errors(op: str, timeout_s: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except (RedisError, OSError, TimeoutError) as error:
        raise Unavailable(
            "The session store (Redis) does not answer; try again in a few seconds.",
            op=op,
            retry_after_s=_RETRY_AFTER_S,
            detail=f"{type(error).__name__}: {error}",
        ) from error


class Scripts:
    """Redis, with the Lua scripts beside this module by name. Needs Redis 6.2 or later.

    Every failure is Unavailable, so callers fail closed and may try again; a call ends after
    `timeout_s` even if the client itself has no timeout.
    """

    def __init__(self, redis: Redis, *, timeout_s: float) -> None:
        self.redis = redis
        self.timeout_s = timeout_s

    async def run(self, name: str, keys: Sequence[str], args: Sequence[str | int]) -> Any:
        """The script's reply, with text decoded. One round trip once Redis knows the script."""
        source, digest = _load(name)
        arguments = cast("list[str]", [*keys, *args])
        async with _store_errors(name, self.timeout_s):
            try:
                reply = await _awaited(self.redis.evalsha(digest, len(keys), *arguments))
            except NoScriptError:
                reply = await _awaited(self.redis.eval(source, len(keys), *arguments))
        return _text(reply)

    async def get_many(self, names: Sequence[str]) -> list[str | None]:
        """The values of plain keys, in order, in one trip; a cluster may hold them in many slots."""
        async with _store_errors("get_many", self.timeout_s):
            pipeline = self.redis.pipeline(transaction=False)
            for name in names:
                pipeline.get(name)
            return cast("list[str | None]", _text(await pipeline.execute()))

    async def set_once(self, name: str, value: str) -> str:
        """The value that the key has, which is `value` if it had none."""
        async with _store_errors("set_once", self.timeout_s):
            await self.redis.set(name, value, nx=True)
            found = _text(await self.redis.get(name))
        return value if found is None else cast("str", found)

    async def scan(self, pattern: str) -> AsyncIterator[str]:
        """Keys that match, some perhaps twice; each one that exists all the while at least once."""
        found = self.redis.scan_iter(match=pattern, count=1000).__aiter__()
        while True:
            async with _store_errors("scan", self.timeout_s):
                try:
                    name = await anext(found)
                except StopAsyncIteration:
                    return
            yield cast("str", _text(name))


def _text(reply: Any) -> Any:
    """Decode a reply whichever `decode_responses` the client was made with."""
    if isinstance(reply, bytes):
        return reply.decode()
    if isinstance(reply, list):
        return [_text(item) for item in reply]
    return reply


async def _awaited(reply: Any) -> Any:
    # redis-py types its async commands as "awaitable or value".
    return await reply


@cache
def _load(name: str) -> tuple[str, str]:
    source = resources.files(__package__).joinpath(f"{name}.lua").read_text(encoding="utf-8")
    return source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
