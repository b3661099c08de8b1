"""The binding of a session to its sandbox: authoritative, never expiring.

Three keys of one slot hold it. The document is immutable, so compare-and-delete compares all of it;
the encrypted traffic token and the stale mark live beside it and change without rewriting it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from sandboxes.errors import Internal
from sandboxes.sessions.keys import SCHEMA_VERSION, KeyNames, SessionKey
from sandboxes.sessions.scripts import Scripts

__all__ = ["Binding", "BindingDamaged", "Cipher", "Stale", "StoredBinding", "read_bindings", "scan"]

_BATCH = 500


class Cipher(Protocol):
    """Keeps the traffic token secret at rest. `decrypt` raises any Exception for what it can't read."""

    def encrypt(self, plain: str) -> str: ...

    def decrypt(self, secret: str) -> str: ...


class BindingDamaged(Internal):
    """The stored binding can't be understood. Nothing is created or deleted because of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """`policy_revision` and `release` are what the sandbox carries, as its tags say; `release` is
    empty on the base template. `has_token` says that a traffic token was issued with it."""

    key: SessionKey
    backend: str
    sandbox_id: str
    template: str
    policy_revision: str
    release: str
    fell_back: bool
    has_token: bool
    timeout_s: float
    bound_at: datetime
    started_at: datetime

    def to_json(self) -> str:
        return json.dumps(
            {
                "version": SCHEMA_VERSION,
                "tenant": self.key.tenant,
                "space": self.key.space,
                "session": self.key.session,
                "backend": self.backend,
                "sandbox_id": self.sandbox_id,
                "template": self.template,
                "policy_revision": self.policy_revision,
                "release": self.release,
                "fell_back": self.fell_back,
                "has_token": self.has_token,
                "timeout_s": self.timeout_s,
                "bound_at": self.bound_at.isoformat(),
                "started_at": self.started_at.isoformat(),
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, document: str, key: SessionKey) -> Binding:
        """Raises BindingDamaged for anything but this version's document of this very session."""
        try:
            return cls._parse(json.loads(document), key)
        except (ValueError, KeyError, TypeError) as error:
            raise BindingDamaged(
                f"The stored binding of session {key} is damaged; destroy the session's sandbox "
                "to start again.",
                op="read_binding",
                detail=f"{type(error).__name__}: {error}",
            ) from error

    @classmethod
    def _parse(cls, data: Any, key: SessionKey) -> Binding:
        if data["version"] != SCHEMA_VERSION:
            raise ValueError(f"unknown version {data['version']!r}")
        if SessionKey(data["tenant"], data["space"], data["session"]) != key:
            raise ValueError("it names another session")
        for name in ("backend", "sandbox_id", "template"):
            if not isinstance(data[name], str) or not data[name].strip():
                raise ValueError(f"{name} is blank")
        return cls(
            key=key,
            backend=data["backend"],
            sandbox_id=data["sandbox_id"],
            template=data["template"],
            policy_revision=str(data["policy_revision"]),
            release=str(data["release"]),
            fell_back=bool(data["fell_back"]),
            has_token=bool(data["has_token"]),
            timeout_s=float(data["timeout_s"]),
            bound_at=_aware(data["bound_at"]),
            started_at=_aware(data["started_at"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """A declaration that the binding's image or policy has changed."""

    at: datetime
    why: str

    def to_json(self) -> str:
        return json.dumps({"at": self.at.isoformat(), "why": self.why})

    @classmethod
    def from_json(cls, document: str) -> Stale:
        """A mark that can't be read is still a mark."""
        try:
            data = json.loads(document)
            return cls(at=_aware(data["at"]), why=str(data["why"]))
        except (ValueError, KeyError, TypeError):
            return cls(at=datetime.now(UTC), why="")


@dataclass(frozen=True, slots=True)
class StoredBinding:
    """A binding as it lies in Redis: the document, and the encrypted token or ''."""

    document: str
    secret: str = ""

    def parse(self, key: SessionKey) -> Binding:
        return Binding.from_json(self.document, key)


async def read_bindings(
    scripts: Scripts, names: KeyNames, keys: Sequence[SessionKey]
) -> list[StoredBinding | None]:
    """The documents of many sessions, in order, in batches. Any failed read fails all of it:
    Unavailable, never a gap that looks like an unbound session."""
    found: list[StoredBinding | None] = []
    for start in range(0, len(keys), _BATCH):
        batch = [names.of(key).binding for key in keys[start : start + _BATCH]]
        documents = await scripts.get_many(batch)
        found += [None if item is None else StoredBinding(item) for item in documents]
    return found


async def scan(
    scripts: Scripts, names: KeyNames, tenant: str, space: str | None
) -> AsyncIterator[list[SessionKey]]:
    """Batches of sessions that are bound. One bound during the whole scan is given exactly once."""
    seen: set[SessionKey] = set()
    batch: list[SessionKey] = []
    async for name in scripts.scan(names.binding_pattern(tenant, space)):
        key = names.session_of(name)
        if key in seen:
            continue
        seen.add(key)
        batch.append(key)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _aware(value: str) -> datetime:
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError("a time has no zone")
    return moment
