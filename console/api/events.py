"""Server-sent events: how one is written. What is in which stream is described in `schema.event_stream`."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["KEEP_ALIVE", "event"]

KEEP_ALIVE = b": still here\n\n"
"""A comment, so that no proxy takes a quiet stream for a dead one."""


def event(name: str, data: dict[str, Any], *, id_: str = "") -> bytes:
    head = f"id: {id_}\n" if id_ else ""
    return f"{head}event: {name}\ndata: {json.dumps(data)}\n\n".encode()
