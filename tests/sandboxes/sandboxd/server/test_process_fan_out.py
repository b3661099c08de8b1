"""Output to many clients: pace, what waits for nobody, deadlines, and how streams end."""

from __future__ import annotations

import asyncio

import pytest

from sandboxes.errors import NotFound
from sandboxes.sandboxd.engines.base import ExitStatus, ProcessSpec
from sandboxes.sandboxd.processes import (
    BUFFER_BYTES,
    HELD_BYTES,
    Ended,
    Gone,
    ManagedProcess,
    Output,
    Overran,
    ProcessRegistry,
    Subscription,
)
from tests.sandboxes.sandboxd.server.raw import until
from tests.sandboxes.sandboxd.server.scripted import ScriptedProcess


async def alive() -> bool:
    return False


class Started:
    def __init__(self, *, timeout_s: float | None = None, tag: str | None = None) -> None:
        self.scripted = ScriptedProcess(7, ProcessSpec(argv=["x"], user="user"))
        self.registry = ProcessRegistry(alive)
        self.process: ManagedProcess = self.registry.add(
            self.scripted, config={"cmd": "x"}, terminal=False, tag=tag, timeout_s=timeout_s
        )


async def read_all(subscription: Subscription) -> tuple[bytes, object]:
    data = b""
    while True:
        event = await subscription.next(5)
        if not isinstance(event, Output):
            return data, event
        data += event.data


async def test_every_client_gets_everything_from_where_it_attached() -> None:
    started = Started()
    with started.process.attach() as first:
        started.process.begin()
        started.scripted.push(b"one")
        assert await first.next(5) == Output("stdout", b"one")
        with started.process.attach() as second:
            started.scripted.push(b"two", "stderr")
            started.scripted.end(code=0)
            assert await read_all(first) == (b"two", Ended(ExitStatus(code=0)))
            assert await read_all(second) == (b"two", Ended(ExitStatus(code=0)))


async def test_the_slowest_client_sets_the_pace() -> None:
    started = Started()
    with started.process.attach() as fast, started.process.attach() as slow:
        started.process.begin()
        for _ in range(40):
            started.scripted.push(b"x" * (BUFFER_BYTES // 10))
        started.scripted.end(code=0)
        reading = asyncio.ensure_future(read_all(fast))
        await asyncio.sleep(0.05)
        assert BUFFER_BYTES <= started.scripted.taken_bytes < 2 * BUFFER_BYTES
        everything, _ = await read_all(slow)
        assert len(everything) == 40 * (BUFFER_BYTES // 10)
        assert (await reading)[0] == everything


async def test_a_slow_client_that_leaves_lets_the_process_go_on() -> None:
    started = Started()
    with started.process.attach():
        started.process.begin()
        for _ in range(40):
            started.scripted.push(b"x" * (BUFFER_BYTES // 10))
        await asyncio.sleep(0.05)
        assert started.scripted.taken_bytes < 2 * BUFFER_BYTES
    started.scripted.end(code=0)

    async def ended() -> bool:
        return started.process.final is not None

    await until(ended)


async def test_with_nobody_attached_only_the_last_output_waits() -> None:
    started = Started()
    started.process.begin()
    for number in range(100):
        started.scripted.push(bytes([number]) * 4096)
    started.scripted.end(code=3)

    async def ended() -> bool:
        return started.process.final is not None

    await until(ended)
    with started.process.attach() as late:
        data, end = await read_all(late)
    assert end == Ended(ExitStatus(code=3))
    assert HELD_BYTES - 4096 <= len(data) <= HELD_BYTES
    assert data.endswith(bytes([99]) * 4096)


async def test_a_deadline_kills_the_tree_once() -> None:
    started = Started(timeout_s=0.05)
    with started.process.attach() as client:
        started.process.begin()
        started.scripted.push(b"before")
        assert await read_all(client) == (b"before", Overran())
    assert started.scripted.killed


async def test_a_paused_process_uses_up_no_time() -> None:
    started = Started(timeout_s=0.2)
    with started.process.attach() as client:
        started.process.begin()
        started.registry.pause_deadlines()
        with pytest.raises(TimeoutError):
            await client.next(0.4)
        assert not started.scripted.killed
        started.registry.resume_deadlines()
        assert (await read_all(client))[1] == Overran()


async def test_a_closed_registry_ends_streams_without_an_exit() -> None:
    started = Started()
    with started.process.attach() as client:
        started.process.begin()
        started.registry.close("gone")
        started.scripted.end(code=0)
        assert await client.next(5) == Gone("gone")
    late = started.registry.add(
        ScriptedProcess(8, ProcessSpec(argv=["x"], user="user")),
        config={"cmd": "x"},
        terminal=False,
        tag=None,
        timeout_s=None,
    )
    with late.attach() as client:
        assert await client.next(5) == Gone("gone")


async def test_processes_are_found_by_pid_or_tag_while_they_run() -> None:
    started = Started(tag="t")
    registry, process = started.registry, started.process
    process.begin()
    assert registry.find({"pid": 7}) is process
    assert registry.find({"tag": "t"}) is process
    started.scripted.end(code=0)

    async def ended() -> bool:
        return registry.live() == []

    await until(ended)
    with pytest.raises(NotFound):
        registry.find({"pid": 7})
    assert registry.find({"pid": 7}, ended=True) is process
    with pytest.raises(NotFound):
        registry.find({"pid": 8}, ended=True)
