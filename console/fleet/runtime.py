"""What a process needs to reach sandboxes: Redis, the session manager, and a client per backend.

A runtime belongs to one event loop. The web process keeps one for as long as it lives; a task or a
command opens its own: `async with Runtime() as runtime`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

from django.conf import settings
from redis.asyncio import Redis

from console import crypto
from console.fleet.history import write_event
from console.fleet.models import Backend
from sandboxes.client import SandboxClient
from sandboxes.errors import Capacity
from sandboxes.sessions import SessionManager

__all__ = ["Runtime", "close_shared_runtime", "shared_runtime"]


_RESOLVES_AT_ONCE = 32
_PLACE_WAIT_S = 120.0
_REDIS_TIMEOUT_S = 10.0
"""Generous, since it counts this process's own lag as well: a burst on a busy machine is no outage."""


class _Cipher:
    """The traffic token's, in Redis."""

    encrypt = staticmethod(crypto.encrypt)
    decrypt = staticmethod(crypto.decrypt)


class Runtime:
    def __init__(self) -> None:
        self.redis: Redis = Redis.from_url(settings.REDIS_URL, socket_timeout=_REDIS_TIMEOUT_S)
        self.sessions = SessionManager(
            self.redis,
            cipher=_Cipher(),
            namespace=settings.REDIS_NAMESPACE,
            on_event=write_event,
            redis_timeout_s=_REDIS_TIMEOUT_S,
        )
        self._clients: dict[str, tuple[str, SandboxClient]] = {}
        self._retired: list[SandboxClient] = []
        self._opening = asyncio.Lock()
        self._places: dict[str, asyncio.Semaphore] = {}

    async def client(self, backend: Backend) -> SandboxClient:
        """The backend's client, opened on first use and again when its settings change."""
        version = _version(backend)
        known = self._clients.get(backend.pk)
        if known and known[0] == version:
            return known[1]
        async with self._opening:
            known = self._clients.get(backend.pk)
            if known and known[0] == version:
                return known[1]
            client = await backend.open_client()
            self._clients[backend.pk] = (version, client)
        # The old client may still serve a call; it is closed with the runtime.
        if known:
            self._retired.append(known[1])
        return client

    @asynccontextmanager
    async def place(self, backend_id: str) -> AsyncIterator[None]:
        """A place among the resolves of a backend; first come, first served. Capacity after a minute or two.

        Without it a burst keeps the event loop so busy that answers of Redis, long there, are found
        past their time limit. A backend that hangs holds up nobody but its own sessions.
        """
        places = self._places.setdefault(backend_id, asyncio.Semaphore(_RESOLVES_AT_ONCE))
        try:
            async with asyncio.timeout(_PLACE_WAIT_S):
                await places.acquire()
        except TimeoutError:
            raise Capacity(
                "Too many sessions of this backend are being started or woken; try again in a few "
                "seconds.",
                op="resolve",
                retry_after_s=5.0,
            ) from None
        try:
            yield
        finally:
            places.release()

    async def aclose(self) -> None:
        """Close everything that was opened. The sandboxes live on."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.redis.aclose)
            stack.push_async_callback(self.sessions.aclose)
            for _, client in self._clients.values():
                stack.push_async_callback(client.aclose)
            for client in self._retired:
                stack.push_async_callback(client.aclose)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, Runtime] = WeakKeyDictionary()


def shared_runtime() -> Runtime:
    """The runtime of this process's event loop, made on first use."""
    loop = asyncio.get_running_loop()
    if loop not in _shared:
        _shared[loop] = Runtime()
    return _shared[loop]


async def close_shared_runtime() -> None:
    """Close this event loop's runtime, if it has one: the last act of a web process. Idempotent."""
    runtime = _shared.pop(asyncio.get_running_loop(), None)
    if runtime is not None:
        await runtime.aclose()


def _version(backend: Backend) -> str:
    content: dict[str, Any] = {"provider": backend.provider, **backend.settings, **backend.secrets}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
