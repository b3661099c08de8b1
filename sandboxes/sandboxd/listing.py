"""Filters, order and pages of lists. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sandboxes.errors import InvalidRequest
from sandboxes.sandboxd.records import SandboxRecord

__all__ = ["MAX_PAGE", "Cursor", "SandboxFilter", "page"]

T = TypeVar("T")

MAX_PAGE = 100

Cursor = tuple[float, str]
"""Sort key of the last item of a page: a time in unix seconds, and the id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxFilter:
    """Empty `states` means any; `images` None means any, empty means none."""

    metadata: Mapping[str, str] = field(default_factory=dict)
    states: Collection[str] = ()
    started_after: float | None = None
    images: Collection[str] | None = None

    def matches(self, record: SandboxRecord) -> bool:
        return (
            (not self.states or record.state in self.states)
            and (self.images is None or record.image in self.images)
            and (self.started_after is None or record.started_at >= self.started_after)
            and all(record.metadata.get(key) == value for key, value in self.metadata.items())
        )


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
