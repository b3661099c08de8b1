"""Order and pages of lists, and what a request asks of them. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from starlette.requests import Request

from sandboxes.errors import InvalidRequest
from sandboxes.wire.encoding import decode_metadata_filter

__all__ = ["MAX_PAGE", "Cursor", "page", "parse_limit", "parse_metadata"]

T = TypeVar("T")

MAX_PAGE = 100

Cursor = tuple[float, str]
"""Sort key of the last item of a page: a time in unix seconds, and the id."""


def page(
    items: Iterable[T],
    *,
    key: Callable[[T], Cursor],
    limit: int,
    token: str | None,
    ascending: bool = False,
) -> tuple[Sequence[T], str | None]:
    """One page, newest first unless `ascending`, and the token of the next; None on the last.

    A page starts after the last item of the one before, so items that come or go meanwhile neither
    repeat nor hide others. Raises InvalidRequest for a token that is not ours.
    """
    ordered = sorted(items, key=key, reverse=not ascending)
    if token:
        last = _decode(token)
        ordered = [i for i in ordered if (key(i) > last if ascending else key(i) < last)]
    chosen = ordered[:limit]
    more = len(ordered) > limit
    return chosen, _encode(key(chosen[-1])) if more and chosen else None


def _encode(cursor: Cursor) -> str:
    return base64.urlsafe_b64encode(f"{cursor[0]!r}|{cursor[1]}".encode()).decode().rstrip("=")


def _decode(token: str) -> Cursor:
    try:
        text = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
        at, separator, item_id = text.partition("|")
        if not separator:
            raise ValueError(text)
        return float(at), item_id
    except (ValueError, binascii.Error):
        raise InvalidRequest("nextToken is not one that a list returned") from None


def parse_limit(request: Request) -> int:
    raw = request.query_params.get("limit")
    if raw is None:
        return MAX_PAGE
    if not raw.isascii() or not raw.isdigit() or int(raw) < 1:
        raise InvalidRequest(f"limit must be a number from 1 to {MAX_PAGE}")
    return min(int(raw), MAX_PAGE)


def parse_metadata(request: Request) -> dict[str, str]:
    """The pairs that a list is filtered by. InvalidRequest for what is no list of key=value."""
    try:
        return decode_metadata_filter(request.query_params.get("metadata", ""))
    except ValueError as error:
        raise InvalidRequest(str(error)) from None
