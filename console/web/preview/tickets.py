"""Who may look at a port through the console.

A page from a sandbox is shown in an origin of its own (CSP `sandbox`), so its scripts, styles and calls
carry no cookie. The signed-in person is therefore given a ticket in the path: it opens this one port of
this one session, for an hour, while they are signed in where they asked for it and may still run things there.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.core import signing
from django.http import HttpRequest
from django.utils import timezone
from starlette.requests import HTTPConnection

from console.fleet.models import Session
from console.tenants.access import Action, Principal
from console.tenants.account_models import SignIn
from console.tenants.models import User

__all__ = ["holder", "issue", "session_for", "signed_in"]

_SALT = "console.web.preview"
_LIFE_S = 3600


def issue(*, connection: HTTPConnection, user: User, session: Session, port: int) -> str:
    key = connection.cookies.get(settings.SESSION_COOKIE_NAME)
    sign_in = SignIn.objects.filter(session_id=key, user=user).first()
    return signing.dumps([sign_in and sign_in.pk, session.pk, port], salt=_SALT)


def holder(ticket: str, *, pk: str, port: int) -> User | None:
    """None for a ticket that is forged, too old, or for something else."""
    try:
        sign_in_id, session_pk, ticket_port = signing.loads(ticket, salt=_SALT, max_age=_LIFE_S)
    except (signing.BadSignature, ValueError):
        return None
    if (session_pk, ticket_port) != (pk, port) or sign_in_id is None:
        return None
    row = SignIn.objects.filter(
        pk=sign_in_id, user__is_active=True, session__expire_date__gt=timezone.now()
    )
    found = row.select_related("user").first()
    return None if found is None else found.user


def signed_in(connection: HTTPConnection) -> User | None:
    """The person of the console's own cookie."""
    request: Any = HttpRequest()
    engine = import_module(settings.SESSION_ENGINE)
    request.session = engine.SessionStore(connection.cookies.get(settings.SESSION_COOKIE_NAME))
    user = get_user(request)
    return user if isinstance(user, User) else None


def session_for(user: User, pk: str) -> Session | None:
    """The session, if this person may run things in it."""
    session = Session.objects.select_related("space__backend").filter(pk=pk).first()
    if session is None:
        return None
    may = Principal.of_user(user).may(
        Action.RUN, tenant_id=session.space.tenant_id, space_id=session.space_id
    )
    return session if may else None
