"""Where a person is signed in: one row beside each of their sessions, and how these end.

Django's sessions are the truth. A row only says whose a session is and what it looks like; ending is
deleting the session, and the row goes with it.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from console.audit.services import Actor
from console.tenants.account_models import SignIn
from console.tenants.accounts import address_of, record_account
from console.tenants.models import User

__all__ = ["end", "end_all", "note", "seen", "sign_ins_of"]

_SINCE, _SEEN = "signed_in_at", "seen_at"
_SEEN_EVERY_S = 300


def seen(request: HttpRequest, user: User) -> None:
    """`note`, unless that was done a moment ago."""
    if timezone.now().timestamp() - request.session.get(_SEEN, 0) >= _SEEN_EVERY_S:
        note(request, user)


def note(request: HttpRequest, user: User) -> None:
    """Write down that the request's session is this person's and in use now. To be called whenever the
    session got a new key. A session ends SESSION_COOKIE_AGE after its last use, and in any case
    SIGN_IN_MAX_AGE_S after the sign-in."""
    session, now = request.session, timezone.now()
    since = datetime.fromtimestamp(session.setdefault(_SINCE, int(now.timestamp())), UTC)
    session[_SEEN] = int(now.timestamp())
    session.set_expiry(
        min(
            now + timedelta(seconds=settings.SESSION_COOKIE_AGE),
            since + timedelta(seconds=settings.SIGN_IN_MAX_AGE_S),
        )
    )
    looks = {
        "user": user,
        "address": address_of(request),
        "user_agent": request.headers.get("User-Agent", "")[:300],
        "last_used_at": now,
    }
    rows = SignIn.objects.filter(session_id=session.session_key)
    # A session that was ended meanwhile has nothing to hang a row on.
    with contextlib.suppress(IntegrityError), transaction.atomic():
        if not rows.update(**looks):
            SignIn.objects.create(session_id=str(session.session_key), created_at=since, **looks)


def sign_ins_of(user: User) -> QuerySet[SignIn]:
    """Those that still hold, the last used first."""
    return SignIn.objects.filter(user=user, session__expire_date__gt=timezone.now())


@transaction.atomic
def end(*, user: User, sign_in_id: str, actor: Actor) -> bool:
    """False if the person has no such sign-in (any more)."""
    row = SignIn.objects.filter(user=user, pk=sign_in_id).first()
    if row is None:
        return False
    _delete(Session.objects.filter(pk=row.session_id))
    record_account(
        actor=actor,
        user=user,
        action="account.end_sign_ins",
        details={"ended": 1, "from": row.address or ""},
    )
    return True


@transaction.atomic
def end_all(*, user: User, actor: Actor, keep: str | None = None) -> int:
    """How many were ended: all but the session with the key `keep`."""
    sessions = Session.objects.filter(sign_in__user=user)
    if keep is not None:
        sessions = sessions.exclude(pk=keep)
    count = _delete(sessions)
    if count:
        record_account(
            actor=actor, user=user, action="account.end_sign_ins", details={"ended": count}
        )
    return count


def _delete(sessions: QuerySet[Session]) -> int:
    _all, by_model = sessions.delete()
    return by_model.get(Session._meta.label, 0)
