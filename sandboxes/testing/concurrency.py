"""Many at once."""

from __future__ import annotations

import asyncio

from sandboxes.client import SandboxClient
from sandboxes.errors import NotFound
from sandboxes.testing.base import (
    Contract,
    SandboxFactory,
    files_of,
    ids_of,
    needs,
    text_of,
    unique,
)
from sandboxes.types import ListFilter, Sandbox

__all__ = ["ConcurrencyContract"]


class ConcurrencyContract(Contract):
    async def test_concurrent_creates(self, client: SandboxClient, sandbox: SandboxFactory) -> None:
        tag = {"tag": unique()}
        made = await asyncio.gather(*(sandbox(metadata=tag) for _ in range(8)))
        assert len({box.id for box in made}) == 8
        said = await asyncio.gather(
            *(text_of(client, box, f"echo {number}") for number, box in enumerate(made))
        )
        assert said == [f"{number}\n" for number in range(8)]
        assert sorted(await ids_of(client, ListFilter(metadata=tag))) == sorted(
            box.id for box in made
        )

    async def test_concurrent_commands_in_one_sandbox(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        said = await asyncio.gather(
            *(text_of(client, box, f"sleep 0.2; echo {number}") for number in range(16))
        )
        assert said == [f"{number}\n" for number in range(16)]

    @needs("files")
    async def test_concurrent_files(self, client: SandboxClient, box: Sandbox) -> None:
        files = files_of(client)

        async def round_trip(number: int) -> None:
            data = bytes([number]) * 300_000
            await files.write(box, f"/tmp/c/{number}", data)
            async with files.read(box, f"/tmp/c/{number}") as stream:
                assert b"".join([chunk async for chunk in stream]) == data

        await asyncio.gather(*(round_trip(number) for number in range(12)))
        assert len(await files.list(box, "/tmp/c")) == 12

    async def test_concurrent_deletes(self, client: SandboxClient, sandbox: SandboxFactory) -> None:
        box = await sandbox()
        results = await asyncio.gather(
            *(client.delete(box.id) for _ in range(5)), return_exceptions=True
        )
        done = [result for result in results if result is None]
        assert len(done) >= 1
        assert all(result is None or isinstance(result, NotFound) for result in results), results

    async def test_creating_while_deleting(
        self, client: SandboxClient, sandbox: SandboxFactory
    ) -> None:
        async def churn() -> None:
            for _ in range(3):
                box = await sandbox()
                assert await text_of(client, box, "echo ok") == "ok\n"
                await client.delete(box.id)

        await asyncio.gather(*(churn() for _ in range(4)))
