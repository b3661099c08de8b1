"""Between the password and the code: whose password was right, kept in a session that is nobody's.

Nothing looks at it but the page that asks for the code; to all others the visitor is not signed in.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from time import time

from django.http import HttpRequest
from django.utils.crypto import constant_time_compare

from console.tenants.models import User

__all__ = ["LIFE_S", "Pending", "forget", "of", "remember"]

LIFE_S = 600
_KEY = "half_signed_in"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    user_id: int
    backend: str
    fingerprint: str
    """Of the password: it must not have changed meanwhile."""
    next: str
    at: float


def remember(request: HttpRequest, user: User, *, next_url: str) -> None:
    """The session gets a new key, so that nobody who planted the old one is half signed in too."""
    request.session.cycle_key()
    request.session[_KEY] = asdict(
        Pending(
            user_id=user.pk,
            backend=user.backend,
            fingerprint=user.get_session_auth_hash(),
            next=next_url,
            at=time(),
        )
    )
    request.session.set_expiry(LIFE_S)


def of(request: HttpRequest) -> tuple[Pending, User] | None:
    """None if nobody gave a password here, or too long ago, or it holds no longer."""
    if _KEY not in request.session:
        return None
    found = Pending(**request.session[_KEY])
    user = User.objects.filter(pk=found.user_id, is_active=True).first()
    if (
        user is None
        or time() - found.at > LIFE_S
        or not constant_time_compare(user.get_session_auth_hash(), found.fingerprint)
    ):
        forget(request)
        return None
    return found, user


def forget(request: HttpRequest) -> None:
    request.session.pop(_KEY, None)
