"""How often and how much at once: token buckets and the cap of running commands, both in Redis, so
that they hold over all processes. Every refusal is a 429 that says when to come again."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from django.conf import settings
from redis.exceptions import NoScriptError, RedisError

from console.api.errors import ApiError
from console.fleet.runtime import shared_runtime
from console.tenants.access import Principal
from sandboxes.errors import Unavailable

__all__ = ["Place", "Rate", "admit_command", "check_guesses", "count_wrong_guess", "take"]

_LEASE_MARGIN_S = 60.0
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


async def take(name: str, principal: Principal) -> None:
    """One token of the principal's bucket of this name, or 429."""
    rate = Rate.of(name)
    bucket = _key("all", name, principal.actor.name)
    wait_ms = await _run("bucket", [bucket], [rate.per_s, rate.burst])
    if wait_ms:
        raise _too_many("This key", wait_ms / 1000)


class Place:
    """One of the places that a space has for commands."""

    def __init__(self, running: str, name: str) -> None:
        self._running, self._name = running, name
        self._held = True

    def release(self) -> None:
        """Idempotent. Nobody waits for Redis here; if this is lost, the lease ends by itself."""
        if self._held:
            self._held = False
            _in_background(_give_back(self._running, self._name))


async def admit_command(
    principal: Principal, *, tenant_id: str, space_id: str, timeout_s: float
) -> Place:
    """A place for a command of at most `timeout_s`, to be released; 429 if there is none, or if the
    principal asks too often."""
    rate, cap = Rate.of("exec"), settings.API_COMMANDS_PER_SPACE
    bucket = _key(tenant_id, "exec", principal.actor.name)
    running = _key(tenant_id, "running", space_id)
    name = secrets.token_hex(8)
    lease_ms = int((timeout_s + _LEASE_MARGIN_S) * 1000)
    verdict, number = await _run(
        "admit", [bucket, running], [rate.per_s, rate.burst, cap, name, lease_ms]
    )
    if verdict == 1:
        raise _too_many("This key", number / 1000)
    if verdict == 2:
        raise ApiError(
            "too_many_requests",
            f"{number} commands run in this space now, which is the limit; wait for one to end.",
            retry_after_s=1.0,
        )
    return Place(running, name)


_blocked: dict[str, float] = {}
"""Addresses that guessed too often, until when (monotonic)."""


def check_guesses(address: str) -> None:
    """429 while the address is blocked. Asks nobody."""
    wait_s = _blocked.get(address, 0.0) - time.monotonic()
    if wait_s > 0:
        raise _too_many("This address", wait_s)
    _blocked.pop(address, None)


async def count_wrong_guess(address: str) -> None:
    """429 and a block from the first one too many. Without Redis nothing is counted: the guess is
    refused all the same."""
    rate = Rate.of("wrong_key")
    try:
        wait_ms = await _run(
            "bucket", [_key("all", "wrong-key", address)], [rate.per_s, rate.burst]
        )
    except Unavailable:
        return
    if wait_ms:
        if len(_blocked) >= _MAX_BLOCKED:
            _blocked.clear()
        _blocked[address] = time.monotonic() + wait_ms / 1000
        raise _too_many("This address", wait_ms / 1000)


def _too_many(who: str, wait_s: float) -> ApiError:
    return ApiError(
        "too_many_requests",
        f"{who} asks too often; try again in {max(1, round(wait_s))} s.",
        retry_after_s=wait_s,
    )


def _key(tag: str, what: str, who: str) -> str:
    # One hash tag, so that a script's keys lie in one slot of a cluster.
    return f"{settings.REDIS_NAMESPACE}:api:{{{tag}}}:{what}:{who}"


async def _run(script: str, keys: list[str], args: list[Any]) -> Any:
    redis = shared_runtime().redis
    source, digest = _load(script)
    try:
        async with asyncio.timeout(5):
            try:
                return await redis.evalsha(digest, len(keys), *keys, *args)  # type: ignore[misc]
            except NoScriptError:
                return await redis.eval(source, len(keys), *keys, *args)  # type: ignore[misc]
    except (RedisError, OSError, TimeoutError) as error:
        raise Unavailable(
            "The session store (Redis) does not answer; try again in a few seconds.",
            op=script,
            retry_after_s=2.0,
            detail=f"{type(error).__name__}: {error}",
        ) from error


@cache
def _load(name: str) -> tuple[str, str]:
    source = resources.files(__package__).joinpath(f"{name}.lua").read_text(encoding="utf-8")
    return source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()


_background: set[asyncio.Task[None]] = set()


def _in_background(work: Any) -> None:
    task = asyncio.get_running_loop().create_task(work)
    _background.add(task)
    task.add_done_callback(_background.discard)


async def _give_back(running: str, name: str) -> None:
    try:
        await shared_runtime().redis.zrem(running, name)
    except (RedisError, OSError):
        return
