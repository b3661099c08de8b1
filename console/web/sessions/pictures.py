"""Pictures that browsers draw without running anything, known by their first bytes."""

from __future__ import annotations

__all__ = ["picture_type"]

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
)


def picture_type(head: bytes) -> str | None:
    """The media type, or None. SVG is text that may hold scripts, so it is not among them."""
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind if kind != "image/bmp" or b"\0" in head[:16] else None
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    if head[4:12] in (b"ftypavif", b"ftypavis"):
        return "image/avif"
    return None
