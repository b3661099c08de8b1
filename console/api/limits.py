"""How often and how much at once: token buckets and the cap of running commands, both in Redis, so
that they hold over all processes. Every refusal is a 429 that says when to come again."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

from django.conf import settings
from redis.exceptions import RedisError

from console.api.errors import ApiError
from console.fleet import rates
from console.fleet.rates import Rate, Script, key_of
from console.fleet.runtime import shared_runtime
from console.tenants.access import Principal

__all__ = ["Place", "admit_command", "check_guesses", "count_wrong_guess", "take"]

_LEASE_MARGIN_S = 60.0
_admit = Script(__package__ or "", "admit")


async def take(name: str, principal: Principal) -> None:
    """One token of the principal's bucket of this name, or 429."""
    wait_s = await rates.take(key_of("all", name, principal.actor.name), Rate.of(name))
    if wait_s:
        raise _too_many("This key", wait_s)


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
    bucket = key_of(tenant_id, "exec", principal.actor.name)
    running = key_of(tenant_id, "running", space_id)
    name = secrets.token_hex(8)
    lease_ms = int((timeout_s + _LEASE_MARGIN_S) * 1000)
    verdict, number = await _admit([bucket, running], [rate.per_s, rate.burst, cap, name, lease_ms])
    if verdict == 1:
        raise _too_many("This key", number / 1000)
    if verdict == 2:
        raise ApiError(
            "too_many_requests",
            f"{number} commands run in this space now, which is the limit; wait for one to end.",
            retry_after_s=1.0,
        )
    return Place(running, name)


def check_guesses(address: str) -> None:
    """429 while the address is blocked. Asks nobody."""
    if wait_s := rates.blocked_s(address):
        raise _too_many("This address", wait_s)


async def count_wrong_guess(address: str) -> None:
    """429 and a block from the first one too many."""
    if wait_s := await rates.count_wrong_key(address, door="api"):
        raise _too_many("This address", wait_s)


def _too_many(who: str, wait_s: float) -> ApiError:
    return ApiError(
        "too_many_requests",
        f"{who} asks too often; try again in {max(1, round(wait_s))} s.",
        retry_after_s=wait_s,
    )


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
