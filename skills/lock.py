"""One worker at a time per space: a lock in Redis that its holder renews.

It keeps two workers apart in time. What must never happen twice is guarded in the database as well,
by the number of the attempt (`skills.build.claim`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from django.conf import settings
from redis.asyncio import Redis
from redis.asyncio.lock import Lock
from redis.exceptions import LockError, RedisError

from sandboxes.errors import Unavailable

__all__ = ["SpaceLock", "hold_space"]


@dataclass(frozen=True, slots=True)
class SpaceLock:
    _lock: Lock

    async def renew(self) -> bool:
        """Start the lease anew. False if another has the lock. Unavailable if Redis does not answer."""
        try:
            return bool(await self._lock.reacquire())
        except LockError:
            return False
        except (RedisError, OSError) as error:
            raise _unavailable(error) from error


@asynccontextmanager
async def hold_space(space_id: str, *, lease_s: float = 60.0) -> AsyncIterator[SpaceLock | None]:
    """The space's build lock, or None at once if another worker has it. A holder that died without giving
    it back has it for `lease_s` at most."""
    redis = Redis.from_url(settings.REDIS_URL, socket_timeout=10, socket_connect_timeout=5)
    name = f"{settings.REDIS_NAMESPACE}:build:{{{space_id}}}:lock"
    lock = Lock(redis, name, timeout=lease_s, thread_local=False)
    try:
        try:
            taken = await lock.acquire(blocking=False)
        except (RedisError, OSError) as error:
            raise _unavailable(error) from error
        try:
            yield SpaceLock(lock) if taken else None
        finally:
            if taken:
                # It may have lapsed or Redis may be away: then it ends by itself.
                with suppress(RedisError, OSError):
                    await lock.release()
    finally:
        await redis.aclose()


def _unavailable(error: Exception) -> Unavailable:
    return Unavailable(
        "Redis does not answer, so the build can't be kept apart from others; it goes on when Redis "
        "is back.",
        op="lock",
        detail=f"{type(error).__name__}: {error}",
    )
