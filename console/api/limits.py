"""How often and how much at once: token buckets and the cap of running commands, both in Redis, so
that they hold over all processes. Every refusal is a 429 that says when to come again.

Every answer that a limit was looked at for tells of it in the fields of
draft-ietf-httpapi-ratelimit-headers-10: `RateLimit-Policy` what holds, `RateLimit` what is left.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from math import ceil
from typing import Any

from django.conf import settings
from redis.exceptions import RedisError

from console.api.errors import ApiError
from console.fleet import rates
from console.fleet.rates import Rate, Script, Taken, key_of
from console.fleet.runtime import shared_runtime
from console.tenants.access import Principal

__all__ = ["Place", "admit_command", "check_guesses", "count_wrong_guess", "take"]

_LEASE_MARGIN_S = 60.0
_admit = Script(__package__ or "", "admit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """One limit and how much of it is left. `more_s` is None where no time brings more."""

    name: str
    most: int
    left: int
    window_s: float | None = None
    more_s: float | None = None

    @classmethod
    def of_bucket(cls, name: str, rate: Rate, taken: Taken) -> Quota:
        return cls(
            name=name,
            most=rate.burst,
            left=taken.left,
            window_s=rate.window_s,
            more_s=taken.wait_s or taken.more_s,
        )

    @property
    def policy(self) -> str:
        if self.window_s is None:
            return f'"{self.name}";q={self.most};qu="concurrent-requests"'
        return f'"{self.name}";q={self.most};w={max(1, ceil(self.window_s))}'

    @property
    def state(self) -> str:
        text = f'"{self.name}";r={max(0, self.left)}'
        return text if self.more_s is None else f"{text};t={ceil(self.more_s)}"


def fields(*quotas: Quota) -> dict[str, str]:
    """The two header fields that tell of these limits."""
    return {
        "RateLimit-Policy": ", ".join(quota.policy for quota in quotas),
        "RateLimit": ", ".join(quota.state for quota in quotas),
    }


async def take(name: str, principal: Principal) -> dict[str, str]:
    """One token of the principal's bucket of this name, or 429. Returns the fields that tell of it."""
    rate = Rate.of(name)
    taken = await rates.take(key_of("all", name, principal.actor.name), rate)
    told = fields(Quota.of_bucket(name, rate, taken))
    if taken.wait_s:
        raise _too_many("This key", taken.wait_s, told)
    return told


class Place:
    """One of the places that a space has for commands. `fields` tell of the limits."""

    def __init__(self, running: str, name: str, fields: dict[str, str]) -> None:
        self._running, self._name, self.fields = running, name, fields
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
    verdict, wait_ms, left, more_ms, now_running = await _admit(
        [bucket, running], [rate.per_s, rate.burst, cap, name, lease_ms]
    )
    taken = Taken(wait_s=wait_ms / 1000, left=left, more_s=more_ms / 1000)
    told = fields(
        Quota.of_bucket("exec", rate, taken),
        Quota(name="running", most=cap, left=cap - now_running),
    )
    if verdict == 1:
        raise _too_many("This key", taken.wait_s, told)
    if verdict == 2:
        raise ApiError(
            "too_many_requests",
            f"{now_running} commands run in this space now, which is the limit; wait for one to end.",
            retry_after_s=1.0,
            headers=told,
        )
    return Place(running, name, told)


def check_guesses(address: str) -> None:
    """429 while the address is blocked. Asks nobody."""
    if wait_s := rates.blocked_s(address):
        raise _too_many("This address", wait_s)


async def count_wrong_guess(address: str) -> None:
    """429 and a block from the first one too many."""
    if wait_s := await rates.count_wrong_key(address, door="api"):
        raise _too_many("This address", wait_s)


def _too_many(who: str, wait_s: float, told: dict[str, str] | None = None) -> ApiError:
    # Rounded up: whoever comes at that second is let in.
    return ApiError(
        "too_many_requests",
        f"{who} asks too often; try again in {max(1, ceil(wait_s))} s.",
        retry_after_s=ceil(wait_s),
        headers=told,
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
