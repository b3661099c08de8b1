"""Nothing is left of a sandbox when its deletion returns."""

from __future__ import annotations

from collections.abc import Callable

from sandboxes.client import SandboxClient
from sandboxes.network import OPEN
from sandboxes.testing.base import Contract, SandboxFactory, needs, text_of, until

__all__ = ["CleanupContract"]

Leftovers = Callable[[str], list[str]]


class CleanupContract(Contract):
    """`leftovers` looks at the host for what belongs to one sandbox, by its id."""

    async def test_nothing_is_left_after_delete(
        self, client: SandboxClient, sandbox: SandboxFactory, leftovers: Leftovers
    ) -> None:
        box = await sandbox(network=OPEN)
        await text_of(client, box, "setsid nohup sleep 7010 >/dev/null 2>&1 </dev/null &")
        assert leftovers(box.id), "the probe sees nothing of a running sandbox"
        await client.delete(box.id)
        await self._clean(leftovers, box.id)

    @needs("pause")
    async def test_nothing_is_left_of_a_paused_one(
        self, client: SandboxClient, sandbox: SandboxFactory, leftovers: Leftovers
    ) -> None:
        box = await sandbox()
        assert client.pausing is not None
        await client.pausing.pause(box.id)
        await client.delete(box.id)
        await self._clean(leftovers, box.id)

    async def _clean(self, leftovers: Leftovers, sandbox_id: str) -> None:
        async def clean() -> bool:
            return not leftovers(sandbox_id)

        try:
            # Disk space may be freed a moment later; everything else is gone at once.
            await until(clean, within_s=5)
        except TimeoutError:
            raise AssertionError(f"left behind: {leftovers(sandbox_id)}") from None
