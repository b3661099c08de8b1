"""The turn lease: says whether a session's sandbox may be rebuilt now.

`begin` takes a reference and, when it is the first, issues one rebuild ticket. The first resolve of
the turn consumes it with the lock (acquire.lua), used or not, so that nothing can tear the sandbox
down later in that turn.
With no lease a stale sandbox is rebuilt at once. A lease that nobody ends lapses by itself.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from sandboxes.sessions.keys import SessionKeys
from sandboxes.sessions.scripts import Scripts

__all__ = ["TurnLease", "TurnState"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnState:
    """`refs` counts the open turns, 0 with `active` while a turn that Redis lost may be running.
    `readable` is False if the lease is damaged; that counts as a turn in flight."""

    active: bool
    refs: int = 0
    ticket: bool = False
    readable: bool = True

    @property
    def may_rebuild(self) -> bool:
        return self.readable and (not self.active or self.ticket)

    @classmethod
    def parse(cls, refs: str, rebuild: str) -> TurnState:
        """From the fields as the scripts return them: '' is absent, '?' unreadable."""
        if not refs:
            return cls(active=False)
        try:
            return cls(active=True, refs=int(refs), ticket=rebuild == "1")
        except ValueError:
            return cls(active=True, readable=False)


class TurnLease:
    def __init__(self, scripts: Scripts, *, ttl_s: float) -> None:
        self._scripts = scripts
        self.ttl_ms = int(ttl_s * 1000)

    async def begin(self, keys: SessionKeys) -> TurnState:
        """Not idempotent: each call must be met by one `end`."""
        return await self._run("turn_begin", keys, [secrets.token_hex(8), self.ttl_ms])

    async def end(self, keys: SessionKeys) -> TurnState:
        """A turn that is already over is success."""
        return await self._run("turn_end", keys, [secrets.token_hex(8)])

    async def _run(self, script: str, keys: SessionKeys, args: Sequence[str | int]) -> TurnState:
        reply = await self._scripts.run(script, [keys.turn], args)
        refs, rebuild = reply or ("", "")
        return TurnState.parse(refs, rebuild or "0")
