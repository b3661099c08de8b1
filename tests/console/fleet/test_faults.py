"""Redis, the backend, the database and the web process fail: nothing is lost, nothing made twice."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from django.db import OperationalError
from django.db.backends.utils import CursorWrapper
from redis import Redis as BlockingRedis

from console.audit.services import SYSTEM
from console.fleet import runtime as runtimes
from console.fleet import sessions
from console.fleet.models import SessionState
from console.fleet.reconcile import reconcile
from console.fleet.runtime import Runtime
from console.tenants.models import Space
from sandboxes.errors import Unavailable
from sandboxes.sessions import TAG_SPACE, Outcome, SessionManager
from sandboxes.types import ExecRequest, ListFilter
from tests.console.fleet.loop import ALICE, history, in_loop, resolve, row_of
from tests.sandboxes.daemon import Daemon
from tests.sandboxes.sessions.world import RedisServer

pytestmark = pytest.mark.sandbox


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives a frozen Redis up after half a second instead of five."""

    class Impatient(SessionManager):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "redis_timeout_s": 0.5})

    monkeypatch.setattr(runtimes, "SessionManager", Impatient)


async def echo(live: sessions.LiveSession, text: str) -> str:
    request = ExecRequest(argv=("sh", "-c", f"echo {text} >> /workspace/log; cat /workspace/log"))
    return (await live.client.run(live.sandbox, request)).stdout.decode()


async def made(live: sessions.LiveSession, space: Space) -> list[str]:
    wanted = ListFilter(metadata={TAG_SPACE: space.pk})
    return [info.id async for info in live.client.list(wanted)]


@asynccontextmanager
async def using(space: Space, *session_ids: str) -> AsyncIterator[Runtime]:
    """A runtime; the sessions are destroyed in the end, however it ends."""
    async with Runtime() as runtime:
        try:
            yield runtime
        finally:
            for session_id in session_ids or ("talk",):
                await sessions.destroy(
                    runtime=runtime, space=space, session_id=session_id, actor=ALICE
                )


async def is_unavailable(runtime: Runtime, space: Space) -> None:
    with pytest.raises(Unavailable, match="try again") as caught:
        await resolve(runtime, space)
    assert caught.value.retry_after_s


@in_loop
async def test_redis_killed_and_restarted(
    real_space: Space, own_redis: RedisServer, impatient: None
) -> None:
    async with using(real_space) as runtime:
        live = await resolve(runtime, real_space)
        key = sessions.session_key(real_space, "talk")
        await runtime.sessions.begin_turn(key=key)
        own_redis.kill()
        await is_unavailable(runtime, real_space)
        own_redis.start()
        again = await resolve(runtime, real_space)
        assert again.sandbox.id == live.sandbox.id
        assert (await runtime.sessions.turn_state(key=key)).refs == 1
        assert await made(live, real_space) == [live.sandbox.id]
        assert (await row_of(real_space)).state == SessionState.ACTIVE


async def _frozen(space: Space, server: RedisServer, frozen_s: float) -> None:
    async with using(space) as runtime:
        live = await resolve(runtime, space)
        await echo(live, "before")
        server.signal(signal.SIGSTOP)
        begun = time.monotonic()
        try:
            await is_unavailable(runtime, space)
            # Who has the sandbox already can use it without Redis.
            assert await echo(live, "meanwhile") == "before\nmeanwhile\n"
            while time.monotonic() - begun < frozen_s:
                await is_unavailable(runtime, space)
        finally:
            server.signal(signal.SIGCONT)
        again = await resolve(runtime, space)
        assert again.sandbox.id == live.sandbox.id
        assert await echo(again, "after") == "before\nmeanwhile\nafter\n"
        assert await made(live, space) == [live.sandbox.id]


@in_loop
async def test_redis_frozen(real_space: Space, own_redis: RedisServer, impatient: None) -> None:
    await _frozen(real_space, own_redis, 1.5)


@pytest.mark.slow
@in_loop
async def test_redis_frozen_for_15_seconds(real_space: Space, own_redis: RedisServer) -> None:
    await _frozen(real_space, own_redis, 15.0)


@in_loop
async def test_redis_flushed(real_space: Space, own_redis: RedisServer, settings: Any) -> None:
    names = [f"talk-{number}" for number in range(4)]
    async with using(real_space, *names) as one, Runtime() as other:
        before = [await resolve(one, real_space, name) for name in names]
        await echo(before[0], "kept")
        with BlockingRedis(unix_socket_path=own_redis.socket) as client:
            client.flushall()
        settings.SKILLYARD_ORPHAN_GRACE_S = 0.0
        report = await reconcile(
            runtime=one, backend=real_space.backend, dry_run=False, actor=SYSTEM
        )
        assert report is not None
        assert (report.claimable, report.deleted) == (4, 0)
        after = await asyncio.gather(
            *(resolve(runtime, real_space, name) for runtime in (one, other) for name in names)
        )
        assert [live.sandbox.id for live in after] == [live.sandbox.id for live in before] * 2
        outcomes = [live.resolved.outcome for live in after]
        assert (outcomes.count(Outcome.CLAIMED), outcomes.count(Outcome.CREATED)) == (4, 0)
        assert await echo(after[0], "again") == "kept\nagain\n"
        assert len(await made(after[0], real_space)) == 4
        assert (await history(real_space, "talk-0"))[-1] == ("claimed", "binding_lost")


@in_loop
async def test_a_daemon_that_is_down_keeps_the_binding_and_its_successor_is_met(
    real_space: Space, redis: BlockingRedis, sandboxd: Daemon
) -> None:
    """The runtime's connections died with the daemon; the next one has adopted the sandbox."""
    async with using(real_space) as runtime:
        live = await resolve(runtime, real_space)
        await echo(live, "before")
        key = runtime.sessions.names.of(sessions.session_key(real_space, "talk")).binding
        binding = redis.get(key)
        sandboxd.crash()
        try:
            with pytest.raises(Unavailable):
                await resolve(runtime, real_space)
            report = await reconcile(
                runtime=runtime, backend=real_space.backend, dry_run=False, actor=SYSTEM
            )
        finally:
            sandboxd.run()
        assert report is not None
        assert report.aborted
        assert (report.deleted, report.corrected) == (0, 0)
        assert (await row_of(real_space)).state == SessionState.ACTIVE
        assert redis.get(key) == binding
        again = await resolve(runtime, real_space)
        assert again.sandbox.id == live.sandbox.id
        assert again.resolved.outcome is Outcome.CONNECTED
        assert await echo(again, "after") == "before\nafter\n"


@in_loop
async def test_without_the_database_a_bound_session_still_resolves(
    real_space: Space, redis: BlockingRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_database(*args: Any) -> None:
        raise OperationalError("the database is away")

    async with using(real_space) as runtime:
        live = await resolve(runtime, real_space)
        assert live.client.pausing is not None
        await live.client.pausing.pause(live.sandbox.id)
        with monkeypatch.context() as patch:
            patch.setattr(CursorWrapper, "execute", no_database)
            again = await resolve(runtime, real_space)
            assert again.sandbox.id == live.sandbox.id
            assert again.sandbox.resumed
            assert await echo(again, "works") == "works\n"
            with pytest.raises(OperationalError):
                await resolve(runtime, real_space, "new")
        assert await made(live, real_space) == [live.sandbox.id], "nothing half made is left"


_WEB_PROCESS = """
import asyncio, sys
from sandboxes import registry
from sandboxes.types import ExecRequest, ExecStarted


async def main(socket, sandbox_id):
    client = await registry.open_client("local", {"socket": socket})
    sandbox = await client.connect(sandbox_id)
    request = ExecRequest(argv=("sh", "-c", "touch /workspace/begun; exec sleep 3600"), timeout_s=5)
    async with client.exec(sandbox, request) as events:
        async for event in events:
            if isinstance(event, ExecStarted):
                print("started", flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@in_loop
async def test_a_web_process_killed_in_mid_command_leaves_the_session_usable(
    real_space: Space, redis: BlockingRedis, sandboxd: Daemon
) -> None:
    async with using(real_space) as runtime:
        live = await resolve(runtime, real_space)
        arguments = (str(sandboxd.socket), live.sandbox.id)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _WEB_PROCESS, *arguments, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"started\n"
        process.kill()
        await process.wait()

        again = await resolve(runtime, real_space)
        assert again.sandbox.id == live.sandbox.id
        assert await echo(again, "usable") == "usable\n"
        # Nobody is left to stop the command, but its own deadline is the daemon's to keep.
        waiting = "while pgrep -x sleep; do read -t 0.1 <> <(:); done; true"
        ended = ExecRequest(argv=("bash", "-c", waiting), timeout_s=30)
        assert (await again.client.run(again.sandbox, ended)).ok


@in_loop
async def test_a_web_process_killed_in_mid_resolve_lets_the_next_one_in(
    real_space: Space, redis: BlockingRedis
) -> None:
    """Its lock lapses by itself, and what it made is claimed, not made again."""
    async with using(real_space) as runtime:
        key = sessions.session_key(real_space, "talk")
        names = runtime.sessions.names.of(key)
        live = await resolve(runtime, real_space)
        # As after a kill between making the sandbox and binding it.
        redis.delete(names.binding, names.token)
        redis.set(names.lock, "a dead process", px=1500)
        again = await resolve(runtime, real_space)
        assert again.resolved.outcome is Outcome.CLAIMED
        assert again.sandbox.id == live.sandbox.id
        assert await made(live, real_space) == [live.sandbox.id]
