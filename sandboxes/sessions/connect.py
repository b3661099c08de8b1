"""Connecting to the sandbox that a binding names, with the traffic token that lies beside it."""

from __future__ import annotations

import logging
from dataclasses import replace

from sandboxes.client import SandboxClient
from sandboxes.errors import Internal, SandboxError
from sandboxes.sessions.binding import Binding, Cipher, StoredBinding
from sandboxes.types import Sandbox

__all__ = ["connect_bound", "stored_token"]

log = logging.getLogger(__name__)


async def connect_bound(
    client: SandboxClient, binding: Binding, token: str | None
) -> Sandbox | None:
    """The handle, with its traffic token if one was issued; None if the sandbox is gone for good.

    `token` is the stored one. Internal if the backend answers with another sandbox, or if the token
    is lost: the sandbox may hold a user's work, so that is never a reason to replace it.
    """
    try:
        sandbox = await client.connect(
            binding.sandbox_id, traffic_token=token, timeout_s=binding.timeout_s
        )
    except SandboxError as error:
        if error.gone:
            return None
        raise
    if sandbox.id != binding.sandbox_id:
        raise Internal(
            "The backend answered with another sandbox than the session's own; nothing was "
            "changed. Check the backend.",
            op="connect",
            detail=f"asked for {binding.sandbox_id}, got {sandbox.id}",
        )
    if sandbox.traffic_token or not binding.has_token:
        return sandbox
    if token is None:
        raise Internal(
            f"The traffic token of session {binding.key} can't be read, so its sandbox can't be "
            "reached; restore the encryption key, or destroy the session's sandbox.",
            op="connect",
        )
    return replace(sandbox, traffic_token=token)


def stored_token(cipher: Cipher, stored: StoredBinding) -> str | None:
    """None if there is none, or if no key decrypts it."""
    if not stored.secret:
        return None
    try:
        return cipher.decrypt(stored.secret)
    except Exception as error:
        log.warning("a traffic token can't be decrypted: %s", type(error).__name__)
        return None
