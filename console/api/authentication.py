"""Who calls: an API key in `X-API-Key` or as a bearer token, or a signed-in browser.

A key's answer is kept in this process for `recent.FRESH_S` seconds, under the hash of the key: so a
key that was revoked, or whose scopes changed, may work that much longer, never more while the
database answers. A browser's session is looked up on every request and, unlike a key, needs the CSRF
token on every method that changes something.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass, replace
from datetime import datetime
from importlib import import_module

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.base import UpdateError
from django.http import HttpRequest
from django.utils import timezone
from rest_framework.authentication import CSRFCheck

from console.api import limits
from console.api.errors import ApiError
from console.api.recent import Recent
from console.tenants.access import Principal
from console.tenants.keys import authenticate
from console.tenants.models import User
from console.tenants.sign_ins import seen

__all__ = ["forget_keys", "principal_of", "request_id"]

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="skillyard"'}
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    principal: Principal
    expires_at: datetime | None


_known: Recent[bytes, _Known] = Recent()


def forget_keys() -> None:
    """Ask the database again from now on, in this process."""
    _known.forget()


def request_id(request: HttpRequest) -> str:
    """The caller's own `X-Request-ID` if it is a plain word, else a new one."""
    given = request.headers.get("X-Request-ID", "")[:64]
    return given if given and given.isascii() and given.isprintable() else uuid.uuid4().hex


async def principal_of(request: HttpRequest) -> Principal:
    """ApiError `unauthenticated` unless the credentials are good."""
    secret = _secret(request)
    if secret is None:
        return await sync_to_async(_of_browser)(request)
    digest = hashlib.sha256(secret.encode()).digest()
    known = _known.peek(digest)
    if known is None:
        address = str(request.META.get("REMOTE_ADDR") or "")
        limits.check_guesses(address)
        known = await _known.get(digest, sync_to_async(lambda: _look_up(secret)))
        if known is None:
            await limits.count_wrong_guess(address)
    if known is None or (known.expires_at is not None and known.expires_at <= timezone.now()):
        raise _refused("This API key is unknown, revoked or expired; make a new one.")
    actor = replace(
        known.principal.actor,
        address=request.META.get("REMOTE_ADDR"),
        request_id=getattr(request, "request_id", ""),
    )
    return replace(known.principal, actor=actor)


def _secret(request: HttpRequest) -> str | None:
    header = request.headers.get("X-API-Key")
    if header is not None:
        return header.strip()
    scheme, _space, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _look_up(secret: str) -> _Known | None:
    key = authenticate(secret)
    if key is None:
        return None
    return _Known(principal=Principal.of_key(key), expires_at=key.expires_at)


def _of_browser(request: HttpRequest) -> Principal:
    if not hasattr(request, "session"):
        engine = import_module(settings.SESSION_ENGINE)
        request.session = engine.SessionStore(request.COOKIES.get(settings.SESSION_COOKIE_NAME))
    user = get_user(request)
    if not isinstance(user, User):
        raise _refused("Send an API key in the header X-API-Key, or sign in first.")
    request.user = user
    if request.method not in _SAFE_METHODS:
        _check_csrf(request)
    principal = Principal.of_user(
        user,
        address=request.META.get("REMOTE_ADDR"),
        request_id=getattr(request, "request_id", ""),
    )
    if principal.owes_two_step:
        raise ApiError(
            "forbidden",
            "Your tenant wants two-step sign-in of its members: set it up in your settings first.",
        )
    seen(request, user)
    if request.session.modified:
        _save_session(request)
    return principal


def _save_session(request: HttpRequest) -> None:
    try:
        request.session.save()
    except UpdateError:
        raise _refused("You were signed out meanwhile; sign in again.") from None


def _check_csrf(request: HttpRequest) -> None:
    check = CSRFCheck(lambda _request: None)  # type: ignore[arg-type]
    check.process_request(request)
    reason = check.process_view(request, None, (), {})  # type: ignore[arg-type]
    if reason:
        raise ApiError(
            "forbidden",
            "A signed-in browser has to send the CSRF token in X-CSRFToken; "
            f"programs use an API key instead. ({reason})",
        )


def _refused(message: str) -> ApiError:
    return ApiError("unauthenticated", message, headers=_CHALLENGE)
