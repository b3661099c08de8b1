"""Commands that are ended: by their deadline, by their caller, or with their sandbox."""

from __future__ import annotations

import asyncio
import time

import pytest

from sandboxes.client import SandboxClient
from sandboxes.errors import NotFound
from sandboxes.testing.base import Contract, shell, text_of, until
from sandboxes.types import ExecOutput, ExecRequest, ExecStarted, Sandbox

__all__ = ["ExecDeadlineContract", "ExecLeavingContract"]

# Children that hide as well as children can: a plain one, one in its own session that ignores
# signals, and one that forked twice. Each leaves a beat in a file.
_BEAT = "while :; do date +%s%N >> /tmp/beat-$0; sleep 0.05; done"
_FAMILY = f"""
sh -c '{_BEAT}' plain &
setsid nohup sh -c 'trap "" HUP TERM INT; {_BEAT}' daemon > /dev/null 2>&1 < /dev/null &
( ( setsid sh -c '{_BEAT}' orphan > /dev/null 2>&1 & ) & )
echo started
exec sleep 300
"""
_BEATS = "tail -n 1 /tmp/beat-plain /tmp/beat-daemon /tmp/beat-orphan"


async def assert_beats(client: SandboxClient, box: Sandbox) -> None:
    async def three() -> bool:
        return len((await shell(client, box, "ls /tmp/beat-*")).stdout.split()) == 3

    await until(three, within_s=15)


async def assert_dead(client: SandboxClient, box: Sandbox) -> None:
    before = await text_of(client, box, _BEATS)
    after = await text_of(client, box, f"sleep 0.5; {_BEATS}")
    assert before == after, "a child of the killed command still runs"


class ExecDeadlineContract(Contract):
    async def test_the_whole_tree_is_killed_within_a_second(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        started = time.monotonic()
        result = await shell(client, box, _FAMILY, timeout_s=2)
        took = time.monotonic() - started
        assert result.killed
        assert result.exit_code == 137
        assert not result.ok
        assert result.stdout == b"started\n"
        assert 1.9 < took < 3.0
        await assert_dead(client, box)

    async def test_a_deadline_is_no_exception_and_the_sandbox_lives_on(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        result = await shell(client, box, "sleep 60", timeout_s=0.5)
        assert result.killed
        assert await text_of(client, box, "echo still here") == "still here\n"

    async def test_a_command_in_time_is_not_killed(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        result = await shell(client, box, "sleep 0.3; exit 7", timeout_s=30)
        assert (result.exit_code, result.killed) == (7, False)

    async def test_no_deadline(self, client: SandboxClient, box: Sandbox) -> None:
        assert (await shell(client, box, "sleep 1.2", timeout_s=None)).ok

    async def test_a_flood_of_output_does_not_delay_the_deadline(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        started = time.monotonic()
        result = await client.run(
            box, ExecRequest(argv=("yes",), timeout_s=1), max_output_bytes=1000
        )
        assert result.killed
        assert time.monotonic() - started < 2.0


class ExecLeavingContract(Contract):
    async def test_leaving_the_block_early_kills_the_tree(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        request = ExecRequest(argv=ExecRequest.shell_argv(_FAMILY))
        async with client.exec(box, request) as events:
            async for event in events:
                if isinstance(event, ExecOutput):
                    await assert_beats(client, box)
                    break
        await assert_dead(client, box)

    async def test_an_error_in_the_block_kills_the_tree(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        request = ExecRequest(argv=ExecRequest.shell_argv(_FAMILY))
        with pytest.raises(LookupError):
            async with client.exec(box, request) as events:
                assert isinstance(await anext(events), ExecStarted)
                await assert_beats(client, box)
                raise LookupError
        await assert_dead(client, box)

    async def test_cancelling_the_caller_kills_the_tree(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        task = asyncio.create_task(shell(client, box, _FAMILY))
        await assert_beats(client, box)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await assert_dead(client, box)

    async def test_cancelling_at_any_moment_leaves_nothing(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        """Even before the caller knows the pid, and while the server is still starting it."""
        for step in range(12):
            task = asyncio.create_task(shell(client, box, "sleep 7030"))
            await asyncio.sleep(step * 0.004)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        async def none_left() -> bool:
            return await text_of(client, box, "pgrep -fc '[s]leep 7030' || true") == "0\n"

        await until(none_left, within_s=5)

    async def test_deleting_the_sandbox_ends_its_commands_as_not_found(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        request = ExecRequest(argv=("sleep", "300"))
        with pytest.raises(NotFound):
            async with client.exec(box, request) as events:
                assert isinstance(await anext(events), ExecStarted)
                await client.delete(box.id)
                async with asyncio.timeout(15):
                    async for _ in events:
                        pass
