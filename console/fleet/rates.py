"""How often: token buckets in Redis, so that they hold over all processes, and who guesses API keys.

Every door of the product counts here; each says in its own words that it is too often.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from dataclasses import dataclass
from importlib import resources
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from redis.exceptions import NoScriptError, RedisError

from console.audit.models import Outcome
from console.audit.services import Actor, record
from console.fleet.runtime import shared_runtime
from sandboxes.errors import Unavailable

__all__ = ["Rate", "Script", "Taken", "blocked_s", "count_wrong_key", "key_of", "take"]

_MAX_BLOCKED = 4096


@dataclass(frozen=True, slots=True)
class Rate:
    """`burst` at once, then `per_s` a second."""

    per_s: float
    burst: int

    @classmethod
    def of(cls, name: str) -> Rate:
        """From the setting API_RATES."""
        per_s, burst = settings.API_RATES[name]
        return cls(float(per_s), int(burst))

    @property
    def window_s(self) -> float:
        """After which a bucket that was emptied is full again."""
        return self.burst / self.per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What became of one wish for a token. `wait_s` is 0.0 if there was one, `left` how many there are now,
    `more_s` after how long there is one more, 0.0 if the bucket is full."""

    wait_s: float
    left: int
    more_s: float


class Script:
    """A Lua file beside a module, run in Redis."""

    def __init__(self, package: str, name: str) -> None:
        self._name = name
        self._source = resources.files(package).joinpath(f"{name}.lua").read_text(encoding="utf-8")
        self._digest = hashlib.sha1(self._source.encode(), usedforsecurity=False).hexdigest()

    async def __call__(self, keys: list[str], args: list[Any]) -> Any:
        """Unavailable if Redis does not answer."""
        redis = shared_runtime().redis
        try:
            async with asyncio.timeout(5):
                try:
                    return await redis.evalsha(self._digest, len(keys), *keys, *args)  # type: ignore[misc]
                except NoScriptError:
                    return await redis.eval(self._source, len(keys), *keys, *args)  # type: ignore[misc]
        except (RedisError, OSError, TimeoutError) as error:
            raise _no_redis(self._name, error) from error


_bucket = Script(__package__ or "", "bucket")


def key_of(tag: str, what: str, who: str) -> str:
    """One hash tag, so that a script's keys lie in one slot of a cluster."""
    return f"{settings.REDIS_NAMESPACE}:api:{{{tag}}}:{what}:{who}"


async def take(bucket: str, rate: Rate) -> Taken:
    """One token of this bucket, if there is one."""
    wait_ms, left, more_ms = await _bucket([bucket], [rate.per_s, rate.burst])
    return Taken(wait_s=wait_ms / 1000, left=left, more_s=more_ms / 1000)


_blocked: OrderedDict[str, float] = OrderedDict()
"""Addresses that guessed too often, until when (monotonic)."""


def blocked_s(address: str) -> float:
    """For how long the address may not try a key. Asks nobody."""
    wait_s = _blocked.get(address, 0.0) - time.monotonic()
    if wait_s > 0:
        return wait_s
    _blocked.pop(address, None)
    return 0.0


async def count_wrong_key(address: str, *, door: str) -> float:
    """How long the address is blocked from now on: 0.0 until there were too many. The first one too many of
    a window is audited. Without Redis nothing is counted: the key is refused all the same."""
    rate = Rate.of("wrong_key")
    try:
        wait_s = (await take(key_of("all", "wrong-key", address), rate)).wait_s
        if not wait_s:
            return 0.0
        first = await _first_of_window(address, rate)
    except Unavailable:
        return 0.0
    _blocked[address] = time.monotonic() + wait_s
    if len(_blocked) > _MAX_BLOCKED:
        _blocked.popitem(last=False)
    if first:
        await sync_to_async(record)(
            actor=Actor(name="unknown key", address=address or None),
            action="key.guess",
            target=address,
            outcome=Outcome.DENIED,
            details={"door": door, "wrong_keys": rate.burst, "window_s": round(rate.window_s)},
        )
    return wait_s


async def _first_of_window(address: str, rate: Rate) -> bool:
    told = key_of("all", "wrong-key-told", address)
    window_ms = round(rate.window_s * 1000)
    try:
        async with asyncio.timeout(5):
            return bool(await shared_runtime().redis.set(told, 1, nx=True, px=window_ms))
    except (RedisError, OSError, TimeoutError) as error:
        raise _no_redis("set", error) from error


def _no_redis(op: str, error: Exception) -> Unavailable:
    return Unavailable(
        "The session store (Redis) does not answer; try again in a few seconds.",
        op=op,
        retry_after_s=2.0,
        detail=f"{type(error).__name__}: {error}",
    )
