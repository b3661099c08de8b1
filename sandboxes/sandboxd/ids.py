"""Identifiers and tokens that sandboxd hands out."""

from __future__ import annotations

import re
import secrets
import string

__all__ = ["SANDBOX_ID", "new_sandbox_id", "new_snapshot_id", "new_token"]

_ALPHABET = string.ascii_lowercase + string.digits
SANDBOX_ID = re.compile(r"[a-z][a-z0-9]{19}", re.ASCII)
"""No hyphen: clients put the id into host names as `{port}-{id}`."""


def new_sandbox_id() -> str:
    return secrets.choice(string.ascii_lowercase) + _random(19)


def new_snapshot_id() -> str:
    return "snap-" + _random(20)


def new_token() -> str:
    return secrets.token_hex(32)


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))
