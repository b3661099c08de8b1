"""Pause, resume, and what happens to a sandbox that nobody uses."""

from __future__ import annotations

import asyncio

import pytest

from sandboxes.client import Pausing, SandboxClient
from sandboxes.errors import NotFound, SandboxError
from sandboxes.testing.base import Contract, SandboxFactory, needs, text_of, unique, until
from sandboxes.types import OnTimeout, Sandbox, SandboxState, TimeoutPolicy

__all__ = ["IdleTimeoutContract", "PauseContract"]

# The counter and the token live in the memory of a process; the file only shows them.
COUNTER = """
import os, secrets, time
token, count = secrets.token_hex(8), 0
while True:
    count += 1
    with open("/tmp/counter.new", "w") as file:
        file.write(f"{token} {count} {os.getpid()}")
    os.rename("/tmp/counter.new", "/tmp/counter")
    time.sleep(0.02)
"""


async def start_counter(client: SandboxClient, box: Sandbox) -> None:
    script = f"setsid nohup python3 -c '{COUNTER}' > /dev/null 2>&1 < /dev/null &\n"
    await text_of(client, box, script + "while ! test -s /tmp/counter; do sleep 0.05; done")


async def counter(client: SandboxClient, box: Sandbox) -> tuple[str, int, int]:
    token, count, pid = (await text_of(client, box, "cat /tmp/counter")).split()
    return token, int(count), int(pid)


def pausing_of(client: SandboxClient) -> Pausing:
    assert client.pausing is not None
    return client.pausing


class PauseContract(Contract):
    stands_on = ("pause",)

    async def test_a_counter_in_memory_goes_on_where_it_stood(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        await start_counter(client, box)
        token, before, pid = await counter(client, box)
        await pausing_of(client).pause(box.id)
        await asyncio.sleep(2)
        awake = await client.connect(box.id)
        token_after, after, pid_after = await counter(client, awake)
        assert (token_after, pid_after) == (token, pid)
        assert before <= after < before + 60, "it counted on while paused, or was started anew"

        async def counts_on() -> bool:
            return (await counter(client, awake))[1] > after

        await until(counts_on, within_s=10)

    async def test_pause_is_seen_and_idempotent(self, client: SandboxClient, box: Sandbox) -> None:
        await pausing_of(client).pause(box.id)
        await pausing_of(client).pause(box.id)
        assert (await client.get(box.id)).state is SandboxState.PAUSED

    async def test_get_does_not_wake_it(self, client: SandboxClient, box: Sandbox) -> None:
        await pausing_of(client).pause(box.id)
        for _ in range(3):
            assert (await client.get(box.id)).state is SandboxState.PAUSED

    async def test_connect_wakes_it(self, client: SandboxClient, box: Sandbox) -> None:
        await text_of(client, box, "echo kept > /tmp/f")
        await pausing_of(client).pause(box.id)
        awake = await client.connect(box.id)
        assert (await client.get(box.id)).state is SandboxState.RUNNING
        assert await text_of(client, awake, "cat /tmp/f") == "kept\n"

    async def test_pausing_again_and_again(self, client: SandboxClient, box: Sandbox) -> None:
        await start_counter(client, box)
        token = (await counter(client, box))[0]
        for _ in range(3):
            await pausing_of(client).pause(box.id)
            box = await client.connect(box.id)
        assert (await counter(client, box))[0] == token

    async def test_a_paused_sandbox_is_not_gone(self, client: SandboxClient, box: Sandbox) -> None:
        await pausing_of(client).pause(box.id)
        with pytest.raises(SandboxError) as caught:
            await text_of(client, box, "true")
        assert not caught.value.gone

    async def test_a_paused_sandbox_can_be_deleted(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        await pausing_of(client).pause(box.id)
        await client.delete(box.id)
        with pytest.raises(NotFound):
            await client.get(box.id)

    async def test_pausing_what_is_gone_is_not_found(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        await client.delete(box.id)
        with pytest.raises(NotFound):
            await pausing_of(client).pause(box.id)


class IdleTimeoutContract(Contract):
    stands_on = ("idle_timeout",)

    async def test_an_unused_sandbox_is_killed(
        self, client: SandboxClient, sandbox: SandboxFactory
    ) -> None:
        made = await sandbox(timeout=TimeoutPolicy(timeout_s=2))
        assert (await client.get(made.id)).state is SandboxState.RUNNING

        async def gone() -> bool:
            try:
                await client.get(made.id)
            except NotFound:
                return True
            return False

        await until(gone, within_s=30)

    @needs("pause")
    async def test_an_unused_sandbox_is_paused_and_wakes(
        self, client: SandboxClient, sandbox: SandboxFactory
    ) -> None:
        policy = TimeoutPolicy(timeout_s=2, on_timeout=OnTimeout.PAUSE)
        made = await sandbox(timeout=policy)
        await start_counter(client, made)
        token = (await counter(client, made))[0]
        await self._paused(client, made)
        awake = await client.connect(made.id, timeout_s=300)
        assert (await counter(client, awake))[0] == token

    @needs("pause")
    async def test_auto_resume_wakes_it_on_use(
        self, client: SandboxClient, sandbox: SandboxFactory
    ) -> None:
        policy = TimeoutPolicy(timeout_s=2, on_timeout=OnTimeout.PAUSE, auto_resume=True)
        made = await sandbox(timeout=policy)
        mark = unique()
        await text_of(client, made, f"echo {mark} > /tmp/mark")
        await self._paused(client, made)
        assert await text_of(client, made, "cat /tmp/mark") == f"{mark}\n"

    async def test_connecting_keeps_it_alive(
        self, client: SandboxClient, sandbox: SandboxFactory
    ) -> None:
        made = await sandbox(timeout=TimeoutPolicy(timeout_s=3))
        await client.connect(made.id, timeout_s=120)
        await asyncio.sleep(4)
        assert (await client.get(made.id)).state is SandboxState.RUNNING

    async def _paused(self, client: SandboxClient, made: Sandbox) -> None:
        async def paused() -> bool:
            return (await client.get(made.id)).state is SandboxState.PAUSED

        await until(paused, within_s=30)
