"""How long the adapter waits for what Cube does in its own time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

__all__ = ["Patience", "Waiter"]

_GROWTH = 1.5
_LONGEST_STEP_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """`busy_s` for a refusal that may pass, `lookup_s` for finding what an unanswered create made,
    `attempt_s` for one try to reach envd; the others for a transition to end."""

    pause_s: float = 30.0
    resume_s: float = 30.0
    ready_s: float = 30.0
    busy_s: float = 10.0
    lookup_s: float = 3.0
    attempt_s: float = 3.0
    step_s: float = 0.1


class Waiter:
    """Waits a little longer each time, until its time is up. Starts counting when it is made."""

    def __init__(self, *, within_s: float, step_s: float) -> None:
        self._ends = asyncio.get_running_loop().time() + within_s
        self._step_s = step_s

    async def again(self, retry_after_s: float | None = None) -> bool:
        """Wait for a moment, or for as long as the server advised. False, at once, if there is no time."""
        wait_s = self._step_s if retry_after_s is None else max(retry_after_s, self._step_s)
        if asyncio.get_running_loop().time() + wait_s > self._ends:
            return False
        await asyncio.sleep(wait_s)
        self._step_s = min(self._step_s * _GROWTH, _LONGEST_STEP_S)
        return True
