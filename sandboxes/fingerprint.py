"""The fingerprint of a provider account: the place that a snapshot lives in."""

from __future__ import annotations

import hashlib

__all__ = ["fingerprint"]


def fingerprint(*, provider: str, api_key: str, api_url: str) -> str:
    """Hex SHA-256 of the three, trimmed and joined by newlines.

    Equal to what WeKnora stores as `owner_fingerprint`, so that both can read one ledger.
    """
    text = "\n".join(part.strip() for part in (provider, api_key, api_url))
    return hashlib.sha256(text.encode()).hexdigest()
