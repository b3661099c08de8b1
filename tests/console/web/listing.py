"""Asking for lists as a browser does, and reading what comes."""

from __future__ import annotations

import re
from typing import Any

from asgiref.sync import async_to_sync
from django.urls import reverse

from console.fleet.models import Session
from tests.console.cast import World

__all__ = ["LISTS", "address", "make_sessions", "session_ids", "text_of"]

LISTS = [
    "spaces",
    "catalog",
    "sessions",
    "builds",
    "releases",
    "backends",
    "reconcile",
    "members",
    "member-security",
    "keys",
    "audit",
    "space-sessions",
    "space-builds",
    "space-releases",
]


def address(name: str, world: World, query: str = "") -> str:
    args = [world.space.pk] if name.startswith("space-") else []
    return reverse(f"web:{name}", args=args) + query


def text_of(response: Any) -> str:
    async def joined() -> bytes:
        return b"".join([chunk async for chunk in response.streaming_content])

    return async_to_sync(joined)().decode() if response.streaming else response.content.decode()


def session_ids(text: str) -> list[str]:
    return re.findall(r'<th scope="row" class="nowrap"><a href="/sessions/[^"]+">([^<]+)</a>', text)


def make_sessions(world: World, *names: str, **values: Any) -> list[Session]:
    values = {"backend": world.backend, **values}
    return [Session.objects.create(space=world.space, session_id=name, **values) for name in names]
