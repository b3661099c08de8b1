"""Conditional requests, ranges and encodings of a download (RFC 9110 §12.5.3, 13, 14)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import Literal

from starlette.datastructures import Headers

__all__ = ["Conditions", "accepted_encoding"]

_RANGE = re.compile(r"bytes=(\d*)-(\d*)", re.ASCII)
_CONDITIONAL = (
    "range",
    "if-range",
    "if-match",
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
)


class Conditions:
    def __init__(self, request: Headers, *, modified_at: datetime, size_bytes: int) -> None:
        self._request = request
        self._size_bytes = size_bytes
        self._modified_at = modified_at.astimezone(UTC).replace(microsecond=0)
        self.etag = f'"{int(modified_at.timestamp() * 1_000_000):x}-{size_bytes:x}"'
        self.last_modified = format_datetime(self._modified_at, usegmt=True)

    @property
    def any(self) -> bool:
        """Ranges and validators speak of the file's own bytes: no encoding then."""
        return any(name in self._request for name in _CONDITIONAL)

    def failed_status(self) -> int | None:
        """304 or 412 if the conditions say so."""
        if (match := self._request.get("if-match")) is not None:
            if not self._names_us(match, weak=False):
                return 412
        elif (since := self._date("if-unmodified-since")) and self._modified_at > since:
            return 412
        if (none_match := self._request.get("if-none-match")) is not None:
            return 304 if self._names_us(none_match, weak=True) else None
        since = self._date("if-modified-since")
        return 304 if since is not None and self._modified_at <= since else None

    def byte_range(self) -> range | Literal["unsatisfiable"] | None:
        """The one range asked for; None for no range, several, or one that no longer applies."""
        match = _RANGE.fullmatch(self._request.get("range", "").replace(" ", ""))
        if match is None or match.group(0) == "bytes=-" or not self._range_applies():
            return None
        first, last = match.groups()
        if not first:
            length = min(int(last), self._size_bytes)
            return range(self._size_bytes - length, self._size_bytes) if length else "unsatisfiable"
        start = int(first)
        stop = min(int(last) + 1, self._size_bytes) if last else self._size_bytes
        if start >= self._size_bytes:
            return "unsatisfiable"
        return range(start, stop) if start < stop else None

    def _range_applies(self) -> bool:
        validator = self._request.get("if-range")
        if validator is None:
            return True
        return validator in (self.etag, self.last_modified)

    def _names_us(self, header: str, *, weak: bool) -> bool:
        tags = [tag.strip() for tag in header.split(",")]
        if weak:
            tags = [tag.removeprefix("W/") for tag in tags]
        return "*" in tags or self.etag in tags

    def _date(self, name: str) -> datetime | None:
        try:
            parsed = parsedate_to_datetime(self._request.get(name, ""))
        except ValueError:
            return None
        return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def accepted_encoding(
    request: Headers, *, identity_only: bool
) -> Literal["gzip", "identity"] | None:
    """gzip wherever it is accepted, else identity unless that is refused; None if neither is."""
    weights: dict[str, float] = {}
    for item in request.get("accept-encoding", "").split(","):
        coding, _, parameter = item.partition(";")
        _, _, weight = parameter.partition("=")
        try:
            weights[coding.strip().lower()] = float(weight or 1)
        except ValueError:
            weights[coding.strip().lower()] = 0.0
    anything = weights.get("*")
    if not identity_only and weights.get("gzip", anything or 0.0) > 0:
        return "gzip"
    if weights.get("identity", 1.0 if anything is None else anything) > 0:
        return "identity"
    return None
