"""What a session is called: in Redis, and in the tags of its sandbox. Names are built only here."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, fields

from sandboxes.errors import InvalidRequest

__all__ = [
    "SCHEMA_VERSION",
    "TAG_BACKEND",
    "TAG_BUILD",
    "TAG_POLICY",
    "TAG_RELEASE",
    "TAG_SCHEMA",
    "TAG_SESSION",
    "TAG_SPACE",
    "TAG_TENANT",
    "KeyNames",
    "SessionKey",
    "SessionKeys",
    "ownership_tags",
    "tagged_session",
]

TAG_TENANT = "skillyard_tenant"
TAG_SPACE = "skillyard_space"
TAG_SESSION = "skillyard_session"
TAG_BUILD = "skillyard_build"
"""In place of TAG_SESSION on a sandbox that a build works in."""
TAG_BACKEND = "skillyard_backend"
TAG_POLICY = "skillyard_policy"
TAG_RELEASE = "skillyard_release"
TAG_SCHEMA = "skillyard_schema"

SCHEMA_VERSION = "1"
"""Of the tags and of the binding document."""

_MAX_ID_LENGTH = 256


@dataclass(frozen=True, slots=True)
class SessionKey:
    """One conversation. The ids are the caller's own, compared byte for byte.

    InvalidRequest for an id that is blank, longer than 256 characters, or holds braces (they would
    break the Redis hash tag) or control characters.
    """

    tenant: str
    space: str
    session: str

    def __post_init__(self) -> None:
        for field in fields(self):
            _check_id(field.name, getattr(self, field.name))

    def __str__(self) -> str:
        return f"{self.tenant}/{self.space}/{self.session}"


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """The Redis keys of one session, all in one cluster slot."""

    lock: str
    binding: str
    token: str
    stale: str
    turn: str


class KeyNames:
    """Redis key names under one namespace: `<namespace>:session:{tenant:space:session}:<part>`."""

    def __init__(self, namespace: str) -> None:
        _check_id("namespace", namespace)
        self._prefix = f"{namespace}:session:{{"
        self.since = f"{namespace}:sessions:since"
        """When this store was first seen; gone after a flush, see the reaper."""

    def of(self, key: SessionKey) -> SessionKeys:
        stem = f"{self._prefix}{_quote(key.tenant)}:{_quote(key.space)}:{key.session}}}:"
        return SessionKeys(
            lock=stem + "lock",
            binding=stem + "binding",
            token=stem + "token",
            stale=stem + "stale",
            turn=stem + "turn",
        )

    def binding_pattern(self, tenant: str, space: str | None = None) -> str:
        """The SCAN pattern of a tenant's bindings, or of one space's."""
        _check_id("tenant", tenant)
        stem = f"{self._prefix}{_quote(tenant)}:"
        if space is not None:
            _check_id("space", space)
            stem += f"{_quote(space)}:"
        return re.sub(r"([*?\[\]\\^])", r"\\\1", stem) + "*}:binding"

    def session_of(self, binding_name: str) -> SessionKey:
        """The inverse of `of(key).binding`."""
        inner = binding_name.removeprefix(self._prefix).removesuffix("}:binding")
        tenant, space, session = inner.split(":", 2)
        return SessionKey(_unquote(tenant), _unquote(space), session)


def ownership_tags(key: SessionKey, backend: str) -> dict[str, str]:
    """The tags that say whose sandbox it is; a claim asks for exactly these."""
    return {
        TAG_TENANT: key.tenant,
        TAG_SPACE: key.space,
        TAG_SESSION: key.session,
        TAG_BACKEND: backend,
    }


def tagged_session(metadata: Mapping[str, str]) -> SessionKey | None:
    """The session that these tags name, or None if they name none that could be ours."""
    try:
        return SessionKey(metadata[TAG_TENANT], metadata[TAG_SPACE], metadata[TAG_SESSION])
    except (KeyError, InvalidRequest):
        return None


def _check_id(name: str, value: str) -> None:
    if not isinstance(value, str) or not value.strip():
        raise InvalidRequest(f"The {name} id is blank; give one.")
    if len(value) > _MAX_ID_LENGTH:
        raise InvalidRequest(
            f"The {name} id is {len(value)} characters long; use at most {_MAX_ID_LENGTH}."
        )
    if "{" in value or "}" in value:
        raise InvalidRequest(f"The {name} id holds a brace; use an id without {{ and }}.")
    if any(unicodedata.category(char) in ("Cc", "Cs") for char in value):
        raise InvalidRequest(f"The {name} id holds a control character; use printable text.")


def _quote(text: str) -> str:
    # The colon parts the ids, so "a:b" + "c" and "a" + "b:c" must not meet in one key.
    return text.replace("%", "%25").replace(":", "%3A")


def _unquote(text: str) -> str:
    return text.replace("%3A", ":").replace("%25", "%")
