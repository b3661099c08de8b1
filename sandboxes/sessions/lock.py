"""The lifecycle lock of a session: one holder among all processes, for as long as it proves alive.

Redis keeps the lock for a lease that the holder renews. A holder that cannot renew is cancelled
before anyone else can take the lock; writes to the binding carry the owner's token too, so that
even a late one changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakValueDictionary

from sandboxes.errors import Conflict, SandboxError, TimedOut
from sandboxes.sessions.binding import Binding, Stale, StoredBinding
from sandboxes.sessions.keys import KeyNames, SessionKey
from sandboxes.sessions.lease import TurnState
from sandboxes.sessions.scripts import Scripts

__all__ = ["Held", "LockLost", "LockTiming", "SessionBusy", "SessionLocks", "Snapshot"]

log = logging.getLogger(__name__)
T = TypeVar("T")


class LockLost(Conflict):
    """The lock lapsed or was taken while the work went on; the work was stopped."""


class SessionBusy(Conflict):
    """Another call held the session's lock all the time that this one would wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockTiming:
    """`retry_s` is the range of the random pause between two tries, `wait_s` how long a call queues,
    `cleanup_s` the budget of work that outlives the caller's cancellation."""

    lease_s: float = 60.0
    renew_s: float = 20.0
    retry_s: tuple[float, float] = (0.025, 0.075)
    wait_s: float = 60.0
    cleanup_s: float = 30.0

    def __post_init__(self) -> None:
        if not 0 < self.renew_s < self.lease_s:
            raise ValueError("renew_s must be positive and below lease_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that Redis knows of a session, read at one instant."""

    stored: StoredBinding | None
    stale: Stale | None
    turn: TurnState

    def binding(self, key: SessionKey) -> Binding | None:
        """Raises BindingDamaged."""
        return None if self.stored is None else self.stored.parse(key)


class SessionLocks:
    """All locks of one manager. Calls of this process queue in memory, so Redis sees one of them."""

    def __init__(
        self, scripts: Scripts, names: KeyNames, timing: LockTiming, *, turn_ttl_ms: int
    ) -> None:
        self.scripts = scripts
        self.names = names
        self.timing = timing
        self.turn_ttl_ms = turn_ttl_ms
        self._local: WeakValueDictionary[SessionKey, asyncio.Lock] = WeakValueDictionary()
        self._background: set[asyncio.Task[None]] = set()

    def hold(
        self, key: SessionKey, *, wait_s: float | None = None, take_ticket: bool = False
    ) -> Held:
        """An async context manager. SessionBusy after `wait_s`; Unavailable if Redis fails.

        `take_ticket` consumes the turn's rebuild ticket in the same trip.
        """
        return Held(self, key, self.timing.wait_s if wait_s is None else wait_s, take_ticket)

    async def look(self, key: SessionKey) -> Snapshot:
        """The snapshot without the lock. Changes nothing."""
        return _snapshot(await self._run_acquire(key, "", take_ticket=False))

    async def acquire(self, key: SessionKey, *, owner: str, take_ticket: bool) -> Snapshot | None:
        """One try: the snapshot, or None if another owner holds the lock."""
        reply = await self._run_acquire(key, owner, take_ticket=take_ticket)
        return None if reply[0] == 0 else _snapshot(reply)

    async def _run_acquire(self, key: SessionKey, owner: str, *, take_ticket: bool) -> list[Any]:
        keys = self.names.of(key)
        reply: list[Any] = await self.scripts.run(
            "acquire",
            [keys.lock, keys.binding, keys.token, keys.stale, keys.turn],
            [owner, int(self.timing.lease_s * 1000), self.turn_ttl_ms, int(take_ticket)],
        )
        return reply

    async def release(
        self, key: SessionKey, *, owner: str, document: str, secret: str, restore_ticket: bool
    ) -> int:
        keys = self.names.of(key)
        reply: int = await self.scripts.run(
            "release",
            [keys.lock, keys.binding, keys.token, keys.turn],
            [owner, document, secret, int(restore_ticket)],
        )
        return reply

    def local(self, key: SessionKey) -> asyncio.Lock:
        return self._local.setdefault(key, asyncio.Lock())

    def give_back_later(self, key: SessionKey, owner: str) -> None:
        """Release in the background what Redis may have granted without our hearing of it."""
        task = asyncio.create_task(self._give_back(key, owner))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _give_back(self, key: SessionKey, owner: str) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timing.lease_s
        misses = 0
        # A request that froze on its way may be carried out after our first try: look again.
        while misses < 3 and loop.time() < deadline:
            try:
                released = await self.release(
                    key, owner=owner, document="", secret="", restore_ticket=False
                )
            except SandboxError:
                misses = 0
            else:
                if released == 1:
                    return
                misses += 1
            await asyncio.sleep(1.0)

    async def aclose(self) -> None:
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)


class Held:
    """The lock while it is held: what was read with it, and work that is bound to it."""

    snapshot: Snapshot

    def __init__(
        self, locks: SessionLocks, key: SessionKey, wait_s: float, take_ticket: bool
    ) -> None:
        self.key = key
        self.keys = locks.names.of(key)
        self.scripts = locks.scripts
        self.owner = secrets.token_hex(16)
        self.lost = False
        self.restore_ticket = False
        self._locks = locks
        self._timing = locks.timing
        self._wait_s = wait_s
        self._take_ticket = take_ticket
        self._local = locks.local(key)
        self._fresh_token: tuple[str, str] = ("", "")
        self._renewer: asyncio.Task[None] | None = None

    def keep_token(self, document: str, secret: str) -> None:
        """Store a newer encrypted token of this binding, on the way of the release."""
        self._fresh_token = (document, secret)

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a session's lock is held by a task")
        self._task = task
        self._loop = asyncio.get_running_loop()
        deadline = self._loop.time() + self._wait_s
        try:
            async with asyncio.timeout_at(deadline):
                await self._local.acquire()
        except TimeoutError:
            raise self._busy() from None
        try:
            self.snapshot = await self._acquire(deadline)
        except BaseException:
            self._local.release()
            raise
        self._cancelling = task.cancelling()
        self._timer = self._loop.call_later(self._timing.renew_s, self._start_renewing)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        if self._renewer is not None:
            self._renewer.cancel()
        try:
            if self.lost:
                # As asyncio.timeout does: only our own cancellation becomes our own error.
                ours = self._task.uncancel() <= self._cancelling
                if exc is None or (ours and isinstance(exc, asyncio.CancelledError)):
                    raise self.lost_error() from exc
            else:
                await self.complete(self._release(exc))
        finally:
            self._local.release()

    async def complete(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end even if the caller is cancelled meanwhile, which is raised after it.

        At most `cleanup_s`, then TimedOut. The loss of the lock stops it at once, with LockLost.
        """
        if self.lost:
            work.close()
            raise self.lost_error()
        task = asyncio.create_task(work)
        deadline = self._loop.time() + self._timing.cleanup_s
        cancelled: asyncio.CancelledError | None = None
        while not task.done() and not self.lost and self._loop.time() < deadline:
            try:
                await asyncio.wait({task}, timeout=deadline - self._loop.time())
            except asyncio.CancelledError as error:
                cancelled = error
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        if cancelled is not None:
            if not task.cancelled() and (error_after := task.exception()) is not None:
                log.warning("work on session %s failed after its caller left", self.key,
                            exc_info=error_after)  # fmt: skip
            raise cancelled
        if task.cancelled():
            raise TimedOut(
                f"Cleaning up after session {self.key} took too long; try again.", op="cleanup"
            )
        return task.result()

    def lost_error(self) -> LockLost:
        return LockLost(
            f"Session {self.key} was taken over by another call; try again.",
            op="lock",
            retry_after_s=1.0,
        )

    def _busy(self) -> SessionBusy:
        return SessionBusy(
            f"Session {self.key} is busy with another call; try again in a moment.",
            op="lock",
            retry_after_s=1.0,
        )

    async def _acquire(self, deadline: float) -> Snapshot:
        while True:
            asked_at = self._loop.time()
            try:
                snapshot = await self._locks.acquire(
                    self.key, owner=self.owner, take_ticket=self._take_ticket
                )
            except BaseException:
                self._locks.give_back_later(self.key, self.owner)
                raise
            if snapshot is not None:
                self._expires_at = asked_at + self._timing.lease_s
                return snapshot
            if self._loop.time() >= deadline:
                raise self._busy()
            await asyncio.sleep(random.uniform(*self._timing.retry_s))  # noqa: S311

    async def _release(self, failure: BaseException | None) -> None:
        document, secret = self._fresh_token
        try:
            released = await self._locks.release(
                self.key,
                owner=self.owner,
                document=document,
                secret=secret,
                restore_ticket=self.restore_ticket,
            )
        except SandboxError as error:
            # The work is done and stands; the lock lapses by itself at the latest.
            log.warning("the lock of session %s could not be released: %s", self.key, error)
            self._locks.give_back_later(self.key, self.owner)
            return
        if released == -1 and failure is None:
            raise self.lost_error()

    def _start_renewing(self) -> None:
        self._renewer = asyncio.create_task(self._renew())

    async def _renew(self) -> None:
        timing = self._timing
        while True:
            asked_at = self._loop.time()
            try:
                async with asyncio.timeout_at(self._expires_at):
                    renewed = await self.scripts.run(
                        "renew", [self.keys.lock], [self.owner, int(timing.lease_s * 1000)]
                    )
            except (SandboxError, TimeoutError):
                # Redis may be back before the lease ends; until then the lock is still ours.
                pause = min(1.0, timing.renew_s)
                if self._loop.time() + pause >= self._expires_at:
                    return self._lose()
                await asyncio.sleep(pause)
                continue
            if not renewed:
                return self._lose()
            self._expires_at = asked_at + timing.lease_s
            await asyncio.sleep(timing.renew_s)

    def _lose(self) -> None:
        log.warning("the lock of session %s was lost; its work is stopped", self.key)
        self.lost = True
        self._task.cancel()


def _snapshot(reply: list[Any]) -> Snapshot:
    document, secret, stale, refs, rebuild = reply[1:]
    return Snapshot(
        stored=StoredBinding(document, secret) if document else None,
        stale=Stale.from_json(stale) if stale else None,
        turn=TurnState.parse(refs, rebuild),
    )
