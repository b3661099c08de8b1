"""API keys: made once, shown once, stored as a hash, looked up by their visible beginning.

A key is `<kind>_` and 40 hex digits (160 random bits). Kind `sky` is ours; `e2b` exists because E2B's
clients accept no other shape. Both work on every interface.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from console.audit.services import record
from console.tenants.access import PLATFORM, SCOPES, Action, Principal
from console.tenants.models import ApiKey, Space, Tenant
from sandboxes.errors import InvalidRequest

__all__ = ["KINDS", "authenticate", "issue_key", "revoke_key"]

KINDS = ("sky", "e2b")
_SHAPE = re.compile(r"(?:sky|e2b)_[0-9a-f]{40}", re.ASCII)
_VISIBLE = 16
_USE_IS_NOTED_EVERY = timedelta(minutes=1)


@transaction.atomic
def issue_key(
    *,
    principal: Principal,
    tenant: Tenant,
    name: str,
    scopes: Iterable[str],
    space: Space | None = None,
    kind: str = "sky",
    expires_at: datetime | None = None,
) -> tuple[ApiKey, str]:
    """A new key and its secret, which is never to be had again. Not idempotent.

    Nobody grants more than they hold. InvalidRequest names what is wrong.
    """
    wanted = list(dict.fromkeys(scopes))
    unknown = [scope for scope in wanted if scope not in SCOPES]
    if kind not in KINDS or unknown or not wanted:
        raise InvalidRequest(
            f"Choose at least one of the scopes {', '.join(SCOPES)}, and a kind of {', '.join(KINDS)}."
        )
    if not name.strip():
        raise InvalidRequest("Give the key a name, so that people know what it is for.")
    if space is not None and space.tenant_id != tenant.pk:
        raise InvalidRequest("That space belongs to another tenant.")
    if expires_at is not None and expires_at <= timezone.now():
        raise InvalidRequest("The key would be expired already; choose a later time or none.")
    if PLATFORM in wanted:
        principal.require_platform()
        if space is not None:
            raise InvalidRequest(
                f"A key with “{PLATFORM}” can't be of one space; leave one of the two."
            )
    for scope in set(wanted) - {PLATFORM}:
        principal.require(Action(scope), tenant_id=tenant.pk, space_id=space.pk if space else None)
    secret = f"{kind}_{secrets.token_hex(20)}"
    key = ApiKey.objects.create(
        tenant=tenant,
        space=space,
        name=name.strip()[:100],
        prefix=secret[:_VISIBLE],
        secret_sha256=_hash(secret),
        scopes=wanted,
        created_by_id=principal.actor.user_id,
        expires_at=expires_at,
    )
    record(
        actor=principal.actor,
        action="key.issue",
        target=key.prefix,
        tenant_id=tenant.pk,
        space_id=space.pk if space else None,
        details={"name": key.name, "scopes": wanted},
    )
    return key, secret


@transaction.atomic
def revoke_key(*, principal: Principal, key: ApiKey) -> ApiKey:
    """From the next request on it opens nothing. Idempotent."""
    if key.revoked_at is None:
        key.revoked_at = timezone.now()
        key.save(update_fields=["revoked_at"])
        record(
            actor=principal.actor,
            action="key.revoke",
            target=key.prefix,
            tenant_id=key.tenant_id,
            space_id=key.space_id,
        )
    return key


def authenticate(secret: str) -> ApiKey | None:
    """The key that this secret belongs to, or None if it is unknown, revoked or expired."""
    if not _SHAPE.fullmatch(secret):
        return None
    key = ApiKey.objects.filter(prefix=secret[:_VISIBLE]).select_related("tenant", "space").first()
    # A hash is fast and right here: the secret has 160 random bits.
    known = key.secret_sha256 if key else _hash("")
    if not hmac.compare_digest(known, _hash(secret)) or key is None:
        return None
    now = timezone.now()
    if key.revoked_at is not None or (key.expires_at is not None and key.expires_at <= now):
        return None
    if key.last_used_at is None or now - key.last_used_at > _USE_IS_NOTED_EVERY:
        ApiKey.objects.filter(pk=key.pk).update(last_used_at=now)
    return key


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
