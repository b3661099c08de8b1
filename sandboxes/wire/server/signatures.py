"""Signed file URLs, as a server judges them."""

from __future__ import annotations

import time

from starlette.datastructures import QueryParams
from starlette.types import Scope

from sandboxes.wire.encoding import signature_matches

__all__ = ["signature_problem", "signed_file_url"]

_OPERATIONS = {"GET": "read", "HEAD": "read", "POST": "write"}


def signature_problem(token: str, scope: Scope) -> str | None:
    """Why this request for /files is not signed with the token; None if it is. The texts are the
    protocol's: clients compare them."""
    query = QueryParams(scope["query_string"])
    signature = query.get("signature")
    if signature is None:
        return "missing signature query parameter"
    expires_at: int | None = None
    if (raw := query.get("signature_expiration")) is not None:
        if not raw.isascii() or not raw.isdigit():
            return "invalid signature"
        expires_at = int(raw)
    matches = signature_matches(
        signature,
        path=query.get("path", ""),
        operation="write" if _OPERATIONS.get(scope["method"]) == "write" else "read",
        user=query.get("username", ""),
        token=token,
        expires_at=expires_at,
    )
    if not matches:
        return "invalid signature"
    if expires_at is not None and expires_at < time.time():
        return "signature is already expired"
    return None


def signed_file_url(scope: Scope) -> bool:
    return scope["path"] == "/files" and "signature" in QueryParams(scope["query_string"])
