"""The switchboard. Everything is off unless a test turns it on; `reset` turns it off again."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import Response

__all__ = ["Faults", "Scripted"]


@dataclass(frozen=True)
class Scripted:
    """An answer in place of the true one; `after` says that the thing is done all the same."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    after: bool = False

    def response(self) -> Response:
        kind = "application/json" if self.body.startswith(b"{") else "text/plain"
        return Response(self.body, self.status, {"content-type": kind, **self.headers})


@dataclass
class Faults:
    scripted: dict[str, deque[Scripted]] = field(default_factory=lambda: defaultdict(deque))
    pause_lag_s: float = 0.0
    pausing_forever: bool = False
    forget_on_pause: bool = False
    """#1843: metadata, template and times are lost."""
    reap_killable_when_paused_after_s: float | None = None
    """#1780, with its 60 seconds cut short."""
    lost_resumes: int = 0
    """#13: so many connects are answered and not done."""
    swept_after_connect: int = 0
    """#1683: so many connects are undone by the sweeper."""
    end_at_in_the_past: bool = False
    """#1400"""
    paused_filter_is_empty: bool = False
    """#177"""
    repeat_page_token: bool = False
    empty_token_restarts: bool = False
    deleted_stay_in_templates: bool = False
    """#820"""
    envd_starts_after: int = 0
    """#648: so many requests to the proxy answer 504 though the sandbox runs."""
    snapshot_of_paused_refused: bool = True
    extra_template_items: list[dict[str, Any]] = field(default_factory=list)

    def answer(
        self,
        op: str,
        status: int,
        message: str | None = None,
        *,
        body: bytes = b"",
        times: int = 1,
        after: bool = False,
        **headers: str,
    ) -> None:
        """The next `times` calls of `op` are answered like this."""
        if message is not None:
            body = json.dumps({"code": status, "message": message}).encode()
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        self.scripted[op].extend([Scripted(status, body, names, after)] * times)

    def next(self, op: str) -> Scripted | None:
        queue = self.scripted[op]
        return queue.popleft() if queue else None

    def reset(self) -> None:
        self.__dict__.update(Faults().__dict__)
