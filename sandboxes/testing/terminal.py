"""An interactive shell."""

from __future__ import annotations

import asyncio

import pytest

from sandboxes.client import SandboxClient, Terminal, TerminalAccess
from sandboxes.errors import NotFound
from sandboxes.testing.base import Contract, text_of
from sandboxes.types import Sandbox

__all__ = ["TerminalContract"]


def terminals_of(client: SandboxClient) -> TerminalAccess:
    assert client.terminal is not None
    return client.terminal


async def shown(terminal: Terminal, wanted: str, *, within_s: float = 15) -> str:
    """What the terminal shows up to and with `wanted`."""
    seen = b""
    async with asyncio.timeout(within_s):
        async for chunk in terminal:
            seen += chunk
            if wanted.encode() in seen:
                break
    return seen.decode(errors="replace")


class TerminalContract(Contract):
    stands_on = ("terminal",)

    async def test_what_is_typed_is_run(self, client: SandboxClient, box: Sandbox) -> None:
        async with terminals_of(client).open(box) as terminal:
            await terminal.write(b"echo $((40 + 2))-answer\n")
            assert "42-answer" in await shown(terminal, "42-answer")

    async def test_size_user_directory_and_environment(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        async with terminals_of(client).open(
            box, cols=123, rows=45, cwd="/tmp", env={"MARK": "seen"}, user="root"
        ) as terminal:
            await terminal.write(b"echo $(stty size) $(id -u) $(pwd) $MARK-end\n")
            assert "45 123 0 /tmp seen-end" in await shown(terminal, "seen-end\r\n")

    async def test_resize(self, client: SandboxClient, box: Sandbox) -> None:
        async with terminals_of(client).open(box) as terminal:
            await terminal.resize(cols=99, rows=33)
            await terminal.write(b"echo $(stty size)-size\n")
            assert "33 99-size" in await shown(terminal, "99-size")

    async def test_it_ends_with_its_shell(self, client: SandboxClient, box: Sandbox) -> None:
        async with terminals_of(client).open(box) as terminal:
            before = terminal.exit
            await terminal.write(b"exit 3\n")
            async with asyncio.timeout(15):
                async for _ in terminal:
                    pass
            after = terminal.exit
            assert before is None
            assert after is not None
            assert after.exit_code == 3

    async def test_leaving_ends_what_runs_in_it(self, client: SandboxClient, box: Sandbox) -> None:
        async with terminals_of(client).open(box) as terminal:
            await terminal.write(b"sleep 7020 & echo go-$((1 + 1))\n")
            await shown(terminal, "go-2")
        assert await text_of(client, box, "pgrep -fc '[s]leep 7020' || true") == "0\n"

    async def test_one_with_a_name_runs_on_and_is_found_by_it(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        access = terminals_of(client)
        assert await access.names(box) == frozenset()
        async with access.open(box, name="desk") as terminal:
            await terminal.write(b"here=$((30 + 4)); echo on-$((1 + 1))\n")
            await shown(terminal, "on-2")
        assert await access.names(box) == {"desk"}
        async with access.attach(box, "desk") as terminal:
            await terminal.resize(cols=71, rows=21)
            await terminal.write(b"echo still-$here-$(stty size)\n")
            assert "still-34-21 71" in await shown(terminal, "21 71\r\n")
            await terminal.kill()
            async with asyncio.timeout(15):
                async for _ in terminal:
                    pass
        assert await access.names(box) == frozenset()

    async def test_two_who_are_attached_see_the_same(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        access = terminals_of(client)
        async with access.open(box, name="desk") as one, access.attach(box, "desk") as other:
            await other.write(b"echo both-$((1 + 1))\n")
            assert "both-2" in await shown(one, "both-2")
            assert "both-2" in await shown(other, "both-2")
            await one.kill()

    async def test_nothing_is_found_under_a_name_that_nobody_gave(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        with pytest.raises(NotFound):
            async with terminals_of(client).attach(box, "nobody-s"):
                pass

    async def test_not_in_a_deleted_sandbox(self, client: SandboxClient, box: Sandbox) -> None:
        await client.delete(box.id)
        with pytest.raises(NotFound):
            async with terminals_of(client).open(box):
                pass
