"""Encrypting what is stored anew, after a new key was put first in SKILLYARD_FIELD_KEYS."""

from __future__ import annotations

from django.apps import apps
from django.conf import settings
from django.db import models, transaction
from redis.asyncio import Redis
from redis.exceptions import WatchError

from console import crypto
from console.crypto import EncryptedJSONField

__all__ = ["rotate_rows", "rotate_tokens"]


def rotate_rows() -> int:
    """Every row of every model that holds a secret; how many there were. Each row on its own, so that it can
    be stopped and run again."""
    count = 0
    for model in apps.get_models():
        names = [f.name for f in model._meta.get_fields() if isinstance(f, EncryptedJSONField)]
        if names:
            for key in list(model._base_manager.values_list("pk", flat=True)):
                count += _rotate_row(model, key, names)
    return count


@transaction.atomic
def _rotate_row(model: type[models.Model], key: object, names: list[str]) -> int:
    row = model._base_manager.select_for_update().filter(pk=key).first()
    if row is None:
        return 0
    row.save(update_fields=names)
    return 1


async def rotate_tokens() -> int:
    """The traffic tokens of bound sessions, in Redis. One that changes meanwhile is new already."""
    count = 0
    async with Redis.from_url(settings.REDIS_URL, socket_timeout=10) as redis:
        pattern = f"{settings.REDIS_NAMESPACE}:session:*:token"
        async for name in redis.scan_iter(match=pattern, count=500):
            count += await _rotate_token(redis, name)
    return count


async def _rotate_token(redis: Redis, name: bytes) -> int:
    async with redis.pipeline(transaction=True) as pipe:
        await pipe.watch(name)
        stored = await pipe.get(name)
        if not stored:
            return 0
        token = crypto.decrypt(stored.decode())
        pipe.multi()  # type: ignore[no-untyped-call]
        pipe.set(name, crypto.encrypt(token), keepttl=True, xx=True)
        try:
            await pipe.execute()
        except WatchError:
            return 0
    return 1
