"""`Idempotency-Key`: the same request, sent again, has the answer of the first and no second effect.

After draft-ietf-httpapi-idempotency-key-header: kept for 24 hours per caller; the same key with
another request is 422, one whose first request still runs is 409. The kept answer is encrypted, for
it may hold a new API key. A refusal is not kept: mend it and use the same key. If the process dies
while it works, the key answers 409 for `_RUNNING_S`, after which the request runs anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from redis.exceptions import RedisError

from console import crypto
from console.api.errors import ApiError
from console.fleet.runtime import shared_runtime
from console.tenants.access import Principal
from sandboxes.errors import Unavailable

__all__ = ["HEADER", "once"]

HEADER = "Idempotency-Key"
_KEPT_S = 24 * 3600
_RUNNING_S = 600
_MAX_LENGTH = 255


async def once(
    principal: Principal,
    request: HttpRequest,
    fingerprint: str,
    work: Callable[[], Awaitable[HttpResponseBase]],
) -> HttpResponseBase:
    """`work`'s answer, or the kept one. `fingerprint` is of the method, the path and the body."""
    key = request.headers.get(HEADER)
    if key is None:
        return await work()
    if not key.strip() or len(key) > _MAX_LENGTH or not key.isprintable():
        raise ApiError(
            "invalid_request", f"{HEADER} takes 1 to {_MAX_LENGTH} printable characters."
        )
    name = _name(principal, key)
    kept = await _begin(name, fingerprint)
    if kept is not None:
        return _again(kept, fingerprint)
    try:
        response = await work()
    except BaseException:
        await asyncio.shield(_forget(name))
        raise
    await _keep(name, fingerprint, response)
    return response


def _again(kept: dict[str, Any], fingerprint: str) -> HttpResponse:
    if kept["request"] != fingerprint:
        raise ApiError("validation", f"This {HEADER} was used for another request; make a new one.")
    if "status" not in kept:
        raise ApiError(
            "conflict",
            f"The first request with this {HEADER} still runs; ask again in a moment.",
            retry_after_s=1.0,
        )
    return HttpResponse(
        crypto.decrypt(kept["body"]).encode(),
        status=kept["status"],
        content_type="application/json",
        headers={"Idempotency-Replayed": "true"},
    )


async def _begin(name: str, fingerprint: str) -> dict[str, Any] | None:
    """What is kept under this name; None if the name is ours now."""
    marker = json.dumps({"request": fingerprint})
    found = await _redis(lambda redis: redis.set(name, marker, nx=True, ex=_RUNNING_S, get=True))
    return json.loads(found) if found else None


async def _keep(name: str, fingerprint: str, response: HttpResponseBase) -> None:
    body = crypto.encrypt(getattr(response, "content", b"").decode())
    kept = json.dumps({"request": fingerprint, "status": response.status_code, "body": body})
    await _redis(lambda redis: redis.set(name, kept, ex=_KEPT_S))


async def _forget(name: str) -> None:
    try:
        await _redis(lambda redis: redis.delete(name))
    except Unavailable:
        return


async def _redis(call: Callable[[Any], Awaitable[Any]]) -> Any:
    try:
        async with asyncio.timeout(5):
            return await call(shared_runtime().redis)
    except (RedisError, OSError, TimeoutError) as error:
        raise Unavailable(
            f"Redis does not answer, so {HEADER} can't be honoured; try again in a few seconds.",
            op="idempotency",
            retry_after_s=2.0,
        ) from error


def _name(principal: Principal, key: str) -> str:
    who = hashlib.sha256(f"{principal.actor.name}\n{key}".encode()).hexdigest()
    return f"{settings.REDIS_NAMESPACE}:api:once:{who}"
