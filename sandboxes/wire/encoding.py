"""Three encodings that the E2B protocol defines in passing: the metadata filter, signatures of file
URLs, and the user selector."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from typing import Literal
from urllib.parse import quote, unquote, urlencode

__all__ = [
    "decode_metadata_filter",
    "decode_user_selector",
    "encode_metadata_filter",
    "encode_user_selector",
    "sign_file_url",
    "signature_matches",
]

Operation = Literal["read", "write"]


def encode_metadata_filter(metadata: Mapping[str, str]) -> str:
    """The value of the `metadata` query parameter, before the HTTP client's own encoding of it.

    Keys and values are quoted, then the pairs are urlencoded: with the client's encoding that makes
    three layers on the wire, as the official SDKs send it and the reference server expects.
    """
    return urlencode({quote(key): quote(value) for key, value in metadata.items()})


def decode_metadata_filter(value: str) -> dict[str, str]:
    """The pairs of a `metadata` parameter that the HTTP layer has decoded once.

    Accepts fewer layers too, as other clients send: a value survives unless it holds a literal `%`.
    Raises ValueError for anything that is no list of key=value.
    """
    # Split before the first unquote where that yields whole pairs, so that "&" and "=" inside a
    # doubly quoted value survive; a client that urlencoded the whole once more has no "=" left.
    text = value if "=" in value or not value else unquote(value)
    pairs: dict[str, str] = {}
    for item in filter(None, text.split("&")):
        key, separator, content = item.partition("=")
        if not separator or "=" in content or not key:
            raise ValueError(f"metadata filter “{item}” is not of the form key=value")
        pairs[_unquote_twice(key)] = _unquote_twice(content)
    return pairs


def _unquote_twice(text: str) -> str:
    return unquote(unquote(text.replace("+", " ")))


def sign_file_url(
    *, path: str, operation: Operation, user: str, token: str, expires_at: int | None = None
) -> str:
    """The `signature` parameter that opens one file without the access token.

    `path` is exactly as in the query, `user` empty if the query names none, `expires_at` in unix
    seconds and then also sent as `signature_expiration`.
    """
    parts = [path, operation, user, token]
    if expires_at is not None:
        parts.append(str(expires_at))
    digest = hashlib.sha256(":".join(parts).encode()).digest()
    return "v1_" + base64.b64encode(digest).decode().rstrip("=")


def signature_matches(
    signature: str,
    *,
    path: str,
    operation: Operation,
    user: str,
    token: str,
    expires_at: int | None,
) -> bool:
    """In constant time. Says nothing about expiry."""
    expected = sign_file_url(
        path=path, operation=operation, user=user, token=token, expires_at=expires_at
    )
    return hmac.compare_digest(expected.encode(), signature.encode())


def encode_user_selector(user: str) -> str:
    """The Authorization header that selects a user; it authenticates nobody, so no password."""
    return "Basic " + base64.b64encode(f"{user}:".encode()).decode()


def decode_user_selector(header: str | None) -> str | None:
    """The selected user, or None if the header is absent or of another scheme.

    Raises ValueError if it is Basic and broken.
    """
    scheme, _, payload = (header or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user = base64.b64decode(payload.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ValueError("the Authorization header is not valid Basic credentials") from None
    return user.partition(":")[0] or None
