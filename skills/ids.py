"""Ids of rows: a three-letter prefix and a ULID, so that they sort by time and say what they are."""

from __future__ import annotations

from ulid import ULID

ID_LENGTH = 30


def new_id(prefix: str) -> str:
    """Such as `rel_01jd…`: safe in URLs, file names and provider metadata."""
    return f"{prefix}_{str(ULID()).lower()}"
