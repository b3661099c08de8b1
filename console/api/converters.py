"""Names of others' making in a path, such as the platform's session ids: any text, URL-encoded, slashes too."""

from __future__ import annotations

from urllib.parse import quote, unquote

__all__ = ["TextConverter"]


class TextConverter:
    regex = "[^/]+"

    def to_python(self, value: str) -> str:
        # `handler._path` leaves %25 and %2F encoded within a segment.
        return unquote(value)

    def to_url(self, value: str) -> str:
        return quote(value, safe="")
