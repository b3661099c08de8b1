"""A real Redis on a private socket, and replicas of the product that share it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet, MultiFernet
from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from redis.exceptions import RedisError

from sandboxes.network import NetworkPolicy
from sandboxes.sessions import (
    LockTiming,
    ReleaseImage,
    Resolved,
    SandboxPlan,
    SessionEvent,
    SessionKey,
    SessionManager,
    StaleReport,
)
from sandboxes.testing.simulated import SimulatedClient, SimulatedProvider
from sandboxes.types import OnTimeout, TimeoutPolicy

BACKEND = "backend-1"
KEY = SessionKey("tenant-1", "space-1", "chat-1")


class RedisServer:
    """One redis-server process of our own; its data survives `kill` and `start`."""

    def __init__(self, folder: Path, *, appendfsync: str = "always") -> None:
        self.folder = folder
        self.appendfsync = appendfsync
        self.socket = str(folder / "redis.sock")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        options = {
            "port": "0",
            "unixsocket": self.socket,
            "unixsocketperm": "700",
            "dir": str(self.folder),
            "save": "",
            "appendonly": "yes",
            "appendfsync": self.appendfsync,
            "logfile": "redis.log",
        }
        argv = ["redis-server"]
        for name, value in options.items():
            argv += [f"--{name}", value]
        self.process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
        with BlockingRedis(unix_socket_path=self.socket) as probe:
            for _ in range(500):
                try:
                    probe.ping()
                    return
                except (RedisError, OSError):
                    if self.process.poll() is not None:
                        break
                    time.sleep(0.01)
        raise RuntimeError((self.folder / "redis.log").read_text())

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def signal(self, number: int) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()


class FernetCipher:
    """The product's own cipher in small."""

    def __init__(self, *keys: bytes) -> None:
        self.fernet = MultiFernet([Fernet(key) for key in keys or (Fernet.generate_key(),)])

    def encrypt(self, plain: str) -> str:
        return self.fernet.encrypt(plain.encode()).decode()

    def decrypt(self, secret: str) -> str:
        return self.fernet.decrypt(secret.encode()).decode()


CIPHER = FernetCipher()


def make_plan(
    *,
    release: str = "7",
    policy_revision: int = 1,
    fingerprint: str = "account-a",
    inbound: bool = False,
    on_timeout: OnTimeout = OnTimeout.KILL,
) -> SandboxPlan:
    return SandboxPlan(
        base_template="base",
        policy=NetworkPolicy(outbound=True, inbound=inbound),
        policy_revision=policy_revision,
        timeout=TimeoutPolicy(timeout_s=1800, on_timeout=on_timeout),
        fingerprint=fingerprint,
        release=ReleaseImage(id=release, snapshot=f"release-{release}", fingerprint="account-a")
        if release
        else None,
        env={"WEKNORA_SKILL_OUTPUT_DIR": "/workspace/output"},
    )


class Space:
    """What the console would know of the space; `plan` is read anew on every call, as SQL would."""

    def __init__(self) -> None:
        self.current = make_plan()
        self.asked = 0
        self.exists = True

    async def plan(self) -> SandboxPlan:
        self.asked += 1
        return self.current

    async def session_exists(self) -> bool:
        return self.exists


class Replica:
    """One process of the product: a manager and a client of its own."""

    def __init__(
        self,
        redis: Redis,
        provider: SimulatedProvider,
        space: Space,
        *,
        timing: LockTiming | None = None,
        turn_ttl_s: float = 1800,
        redis_timeout_s: float = 5.0,
    ) -> None:
        self.events: list[SessionEvent] = []
        self.client: SimulatedClient = provider.client()
        self.space = space
        self.manager = SessionManager(
            redis,
            cipher=CIPHER,
            on_event=self._on_event,
            timing=timing or LockTiming(retry_s=(0.001, 0.005)),
            turn_ttl_s=turn_ttl_s,
            redis_timeout_s=redis_timeout_s,
        )

    async def _on_event(self, event: SessionEvent) -> None:
        self.events.append(event)

    async def resolve(self, key: SessionKey = KEY, *, wait_s: float | None = None) -> Resolved:
        return await self.manager.resolve(
            key=key,
            client=self.client,
            backend=BACKEND,
            plan=self.space.plan,
            session_exists=self.space.session_exists,
            actor="alice",
            wait_s=wait_s,
        )

    async def destroy(self, key: SessionKey = KEY) -> bool:
        return await self.manager.destroy(key=key, client=self.client, backend=BACKEND)

    async def mark_stale(self, **options: Any) -> StaleReport:
        return await self.manager.mark_stale(
            tenant=KEY.tenant, space=KEY.space, why="release 8", **options
        )

    def history(self) -> list[tuple[str, str]]:
        return [(event.kind.value, event.why.value) for event in self.events]


async def until(condition: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    """Await a condition, up to ten seconds."""
    async with asyncio.timeout(10):
        while True:
            result = condition()
            if isinstance(result, Awaitable):
                result = await result
            if result:
                return
            await asyncio.sleep(0.005)
