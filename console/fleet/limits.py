"""Caps on what passes through."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator

from sandboxes.errors import InvalidRequest

__all__ = ["capped", "readable"]


async def capped(data: AsyncIterable[bytes], max_bytes: int) -> AsyncIterator[bytes]:
    """The same chunks; InvalidRequest as soon as there are more than `max_bytes`."""
    seen = 0
    async for chunk in data:
        seen += len(chunk)
        if seen > max_bytes:
            raise InvalidRequest(
                f"The file is larger than {readable(max_bytes)}; send a smaller one, or have the "
                "session fetch it itself."
            )
        yield chunk


def readable(size_bytes: int) -> str:
    """“100 MiB”."""
    size = float(size_bytes)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:g} {unit}"
        size /= 1024
    return f"{size:g} GiB"
