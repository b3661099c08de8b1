"""What the protocol promises of sandboxes: their lifecycle, deadlines, tokens and metadata.

The engine below does the work; the store beside keeps the promises over a restart. Every change of
one sandbox's lifecycle holds that sandbox's lock. In memory is the truth of this process; the
store is written through.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Iterable

from sandboxes.errors import Conflict, NotFound, SandboxError, Unsupported
from sandboxes.network import NetworkPolicy
from sandboxes.sandboxd.deadlines import Deadlines
from sandboxes.sandboxd.engines.base import Engine, EngineSandboxState, Limits, SandboxSpec
from sandboxes.sandboxd.ids import new_sandbox_id, new_token
from sandboxes.sandboxd.images import Images, NamedSnapshot
from sandboxes.sandboxd.live import LiveSandbox, Sample
from sandboxes.sandboxd.records import SandboxRecord
from sandboxes.sandboxd.store import Loaded, Store
from sandboxes.wire.server.newsandbox import CreateSpec

__all__ = ["SandboxService"]

SAMPLE_EVERY_S = 5.0
_RETRY_EXPIRY_S = 5.0
_CONCURRENT_CREATES = 4
"""More at once gain nothing on a small host and cost every one of them latency."""

log = logging.getLogger(__name__)


class SandboxService:
    def __init__(self, engine: Engine, store: Store, *, limits: Limits | None = None) -> None:
        self.engine = engine
        self.images = Images(engine, store)
        self.limits = limits or Limits()
        self._store = store
        self._live: dict[str, LiveSandbox] = {}
        self._deadlines = Deadlines(self._expire)
        self._creates = asyncio.Semaphore(_CONCURRENT_CREATES)
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, loaded: Loaded) -> None:
        """Adopt: what the store knows and the engine still runs. A sandbox that only one of the two
        knows is gone, or was never handed out: it is destroyed."""
        adopted = {found.id: found for found in await self.engine.start()}
        await self.images.start(loaded.snapshots)
        for record in loaded.sandboxes:
            found = adopted.pop(record.id, None)
            if found is None or found.state is EngineSandboxState.DEAD:
                log.warning("sandbox %s did not outlive the last sandboxd", record.id)
                await self.engine.destroy(record.id)
                await self._store.delete_sandbox(record.id)
                continue
            record.paused = found.state is EngineSandboxState.PAUSED
            live = self._add(record)
            if not record.paused:
                self._deadlines.set(live.id, record.end_at)
        for stray in adopted:
            log.warning("sandbox %s has no record; destroying it", stray)
            await self.engine.destroy(stray)
        self._spawn(self._deadlines.run())
        self._spawn(self._sample_forever())

    async def aclose(self) -> None:
        """Let go: streams end, sandboxes live on for the next start. Idempotent."""
        for live in self._live.values():
            live.processes.close("sandboxd is restarting; the sandbox lives on")
            live.watchers.close("sandboxd is restarting; the sandbox lives on")
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.engine.aclose()
        await self._store.aclose()

    # Lifecycle

    async def create(self, spec: CreateSpec) -> LiveSandbox:
        """Not idempotent. Leaves nothing behind if it fails."""
        if spec.auto_pause and not self.engine.capabilities.pause:
            raise Unsupported(f"autoPause is not supported: {_note(self.engine, 'pause')}")
        image = await self.images.resolve(spec.template)
        now = round(time.time(), 6)  # as precise as what clients see and compare with
        record = SandboxRecord(
            id=new_sandbox_id(),
            template=spec.template,
            image=image,
            started_at=now,
            end_at=now + spec.timeout_s,
            timeout_s=spec.timeout_s,
            auto_pause=spec.auto_pause,
            auto_resume=spec.auto_resume,
            mask_request_host=spec.mask_request_host,
            metadata=dict(spec.metadata),
            env=dict(spec.env),
            access_token=new_token() if spec.secured else None,
            traffic_token=None if spec.policy.inbound else new_token(),
        )
        record.set_policy(spec.policy)
        engine_spec = SandboxSpec(
            id=record.id, image=image, network=spec.policy, limits=self.limits
        )
        async with self._creates:
            await self.engine.create(engine_spec)
        try:
            record.end_at = time.time() + spec.timeout_s
            await self._store.put_sandbox(record)
        except BaseException:
            await asyncio.shield(self.engine.destroy(record.id))
            raise
        live = self._add(record)
        self._deadlines.set(live.id, record.end_at)
        return live

    def get(self, sandbox_id: str) -> LiveSandbox:
        live = self._live.get(sandbox_id)
        if live is None or live.gone:
            raise NotFound(f"Sandbox {sandbox_id} not found")
        return live

    def all(self) -> Iterable[LiveSandbox]:
        return [live for live in self._live.values() if not live.gone]

    async def connect(self, sandbox_id: str, timeout_s: float) -> tuple[LiveSandbox, bool]:
        """Wakes a paused one (the flag says so); extends its life, never shortens it."""
        live = self.get(sandbox_id)
        async with live.changing("connecting", wait=True):
            if await self._dead(live):
                raise NotFound(f"Sandbox {sandbox_id} not found")
            resumed = live.record.paused
            if resumed:
                await self._resume(live, timeout_s)
            else:
                await self._extend(live, timeout_s)
            return live, resumed

    async def resume(self, sandbox_id: str, timeout_s: float) -> LiveSandbox:
        """Conflict if it is running."""
        live = self.get(sandbox_id)
        async with live.changing("resuming", wait=False):
            if not live.record.paused:
                raise Conflict(f"Sandbox {sandbox_id} is already running")
            await self._resume(live, timeout_s)
            return live

    async def pause(self, sandbox_id: str) -> None:
        """Conflict if it is paused or in transition."""
        live = self.get(sandbox_id)
        async with live.changing("pausing", wait=False):
            if live.record.paused:
                raise Conflict(f"Sandbox {sandbox_id} is already paused")
            await self._pause(live)

    async def kill(self, sandbox_id: str) -> None:
        live = self.get(sandbox_id)
        async with live.changing("being killed", wait=True):
            await self._destroy(live)

    async def set_timeout(self, sandbox_id: str, timeout_s: float) -> None:
        """From now, longer or shorter; 0 expires it at once. Conflict while paused."""
        live = self._running(sandbox_id)
        live.record.timeout_s = timeout_s or live.record.timeout_s
        await self._set_end(live, time.time() + timeout_s)

    async def refresh(self, sandbox_id: str, timeout_s: float) -> None:
        """Like `set_timeout`, but never shortens."""
        await self._extend(self._running(sandbox_id), timeout_s)

    async def set_network(self, sandbox_id: str, policy: NetworkPolicy) -> None:
        """Replaces all of it. A traffic token is made when inbound is first closed, and kept while
        it is open: whoever has stored it needs no new one when it is closed again."""
        live = self.get(sandbox_id)
        async with live.changing("being updated", wait=True):
            await self.engine.set_network(sandbox_id, policy)
            live.record.set_policy(policy)
            if not policy.inbound and live.record.traffic_token is None:
                live.record.traffic_token = new_token()
            await self._store.put_sandbox(live.record)

    async def snapshot(self, sandbox_id: str, name: str | None) -> NamedSnapshot:
        live = self.get(sandbox_id)
        async with live.changing("being snapshotted", wait=True):
            if await self._dead(live):
                raise NotFound(f"Sandbox {sandbox_id} not found")
            return await self.images.snapshot(sandbox_id, name)

    # The data plane's way in

    async def wake(self, live: LiveSandbox) -> None:
        """Make a sandbox ready for traffic: resumes it if it is paused and may wake by itself.
        NotFound if it is gone or must not wake; Conflict while it is being paused."""
        if live.gone:
            raise NotFound(f"Sandbox {live.id} not found")
        if not live.record.paused:
            if live.transition == "pausing" and not live.record.auto_resume:
                raise Conflict(f"Sandbox {live.id} is pausing; try again in a moment")
            return
        if not live.record.auto_resume:
            raise NotFound(f"Sandbox {live.id} is paused; connect to it first")
        async with live.changing("resuming", wait=True):
            if live.record.paused:
                await self._resume(live, live.record.timeout_s)

    async def died(self, live: LiveSandbox) -> bool:
        """Did it die without being asked to? If so, its remains are cleared away."""
        if live.gone:
            return True
        if not await self._dead(live):
            return False
        live.bury()
        self._spawn(self._clear_away(live))
        return True

    # Inside

    def _add(self, record: SandboxRecord) -> LiveSandbox:
        async def died() -> bool:
            return await self.died(live)

        live = LiveSandbox(record, died)
        self._live[record.id] = live
        return live

    def _running(self, sandbox_id: str) -> LiveSandbox:
        live = self.get(sandbox_id)
        if live.record.paused:
            raise Conflict(f"Sandbox {sandbox_id} is paused; connect to it to set its timeout")
        return live

    async def _resume(self, live: LiveSandbox, timeout_s: float) -> None:
        await self.engine.resume(live.id)
        live.resume_clocks()
        live.record.timeout_s = timeout_s
        await self._set_end(live, time.time() + timeout_s)

    async def _pause(self, live: LiveSandbox) -> None:
        if await self._dead(live):
            raise NotFound(f"Sandbox {live.id} not found")
        await self.engine.pause(live.id)
        live.pause_clocks()
        self._deadlines.clear(live.id)
        await self._store.put_sandbox(live.record)

    async def _destroy(self, live: LiveSandbox) -> None:
        live.bury()
        await self.engine.destroy(live.id)
        self._deadlines.clear(live.id)
        self._live.pop(live.id, None)
        await self._store.delete_sandbox(live.id)

    async def _clear_away(self, live: LiveSandbox) -> None:
        log.warning("sandbox %s died by itself or by another hand", live.id)
        try:
            await self._destroy(live)
        except SandboxError as error:
            log.error("sandbox %s died and could not be cleared away: %s", live.id, error)

    async def _dead(self, live: LiveSandbox) -> bool:
        try:
            return await self.engine.state(live.id) is EngineSandboxState.DEAD
        except NotFound:
            return True

    async def _extend(self, live: LiveSandbox, timeout_s: float) -> None:
        end_at = time.time() + timeout_s
        if end_at > live.record.end_at:
            live.record.timeout_s = timeout_s
            await self._set_end(live, end_at)

    async def _set_end(self, live: LiveSandbox, end_at: float) -> None:
        live.record.end_at = end_at
        self._deadlines.set(live.id, end_at)
        await self._store.put_sandbox(live.record)

    async def _expire(self, sandbox_id: str) -> None:
        live = self._live.get(sandbox_id)
        if live is None or live.gone:
            return
        try:
            async with live.changing("expiring", wait=True):
                if live.record.paused or live.record.end_at > time.time():
                    return
                if live.record.auto_pause:
                    await self._pause(live)
                else:
                    await self._destroy(live)
        except NotFound:
            await self.died(live)
        except SandboxError as error:
            log.error("sandbox %s could not be expired, trying again: %s", sandbox_id, error)
            self._deadlines.set(sandbox_id, time.time() + _RETRY_EXPIRY_S)

    async def _sample_forever(self) -> None:
        while True:
            for live in list(self.all()):
                await self._sample(live)
            await asyncio.sleep(SAMPLE_EVERY_S)

    async def _sample(self, live: LiveSandbox) -> None:
        try:
            if not live.transition and not await self.died(live) and not live.record.paused:
                usage = await self.engine.usage(live.id)
                live.samples.append(Sample(time.time(), usage))
        except SandboxError as error:
            log.debug("no metrics of sandbox %s: %s", live.id, error)
        except Exception:
            log.exception("metrics of sandbox %s could not be read", live.id)

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _note(engine: Engine, capability: str) -> str:
    return engine.capabilities.notes.get(capability, "this engine can't do it; leave it out")
