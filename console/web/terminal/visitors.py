"""Who is at the other end of a terminal's WebSocket, and whether they still may be.

A browser sends its cookie along with a WebSocket that any page opens, so the page's origin has to be our own;
without one there is no browser, and nothing to serve.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest
from django.http.request import split_domain_port, validate_host
from django.utils.translation import get_language_from_request
from starlette.requests import HTTPConnection

from console.audit.services import Actor
from console.fleet.models import Session
from console.web.preview import tickets

__all__ = ["Visitor", "is_same_origin", "language_of", "visitor"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """A signed-in person who may run things in this session."""

    actor: Actor
    user_id: int
    session: Session


def visitor(connection: HTTPConnection, pk: str) -> Visitor | None:
    """From the cookie and the database as they are now."""
    user = tickets.signed_in(connection)
    session = None if user is None else tickets.session_for(user, pk)
    if user is None or session is None:
        return None
    actor = Actor(name=user.get_username(), user_id=user.pk, address=_address(connection))
    return Visitor(actor=actor, user_id=user.pk, session=session)


def is_same_origin(connection: HTTPConnection) -> bool:
    origin, host = connection.headers.get("origin", ""), connection.headers.get("host", "")
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    domain, _port = split_domain_port(host)
    if not validate_host(domain, settings.ALLOWED_HOSTS):
        return False
    schemes = ("https",) if settings.HTTPS_ONLY else ("https", "http")
    parts = urlsplit(origin)
    return parts.scheme in schemes and parts.netloc.lower() == host.lower()


def language_of(connection: HTTPConnection) -> str:
    """The one that the person's pages are in."""
    request = HttpRequest()
    request.COOKIES = dict(connection.cookies)
    request.META["HTTP_ACCEPT_LANGUAGE"] = connection.headers.get("accept-language", "")
    return get_language_from_request(request)


def _address(connection: HTTPConnection) -> str | None:
    try:
        return str(ipaddress.ip_address(connection.client.host if connection.client else ""))
    except ValueError:
        return None
