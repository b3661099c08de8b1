"""A backend's settings as people enter them: typed, judged, and split into what is shown and what is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from console.fleet.models import Backend
from sandboxes import registry
from sandboxes.errors import InvalidRequest
from sandboxes.urlguard import UrlGuard

__all__ = ["MASK", "Connection", "Field", "check_urls", "fields_of", "masked", "read"]

MASK = "***"
"""Stands for a stored secret: shown in its place, and given back to keep it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One setting, as its provider describes it. `kind` is str, bool, int or float."""

    name: str
    label: str
    help: str
    kind: type
    secret: bool
    identity: bool
    multiline: bool
    minimum: float | None
    required: bool
    default: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    provider: str
    settings: Mapping[str, Any]
    secrets: Mapping[str, Any]

    @classmethod
    def of(cls, backend: Backend) -> Connection:
        return cls(provider=backend.provider, settings=backend.settings, secrets=backend.secrets)

    @property
    def values(self) -> dict[str, Any]:
        return {**self.settings, **self.secrets}

    @property
    def fingerprint(self) -> str:
        return registry.account_fingerprint(self.provider, self.values)

    def identity_changes(self, new: Connection) -> list[str]:
        """The labels of the settings by which `new` points at another provider account or place."""
        old_values, new_values = self.values, new.values
        return [
            field.label
            for field in fields_of(self.provider)
            if field.identity
            and old_values.get(field.name, field.default)
            != new_values.get(field.name, field.default)
        ]


def fields_of(provider: str) -> list[Field]:
    """In the order in which a form shows them."""
    settings = registry.settings_type(provider)
    hints = get_type_hints(settings)
    found = []
    for field in dataclasses.fields(settings):
        required = field.default is dataclasses.MISSING
        found.append(
            Field(
                name=field.name,
                label=field.metadata["label"],
                help=field.metadata["help"],
                kind=hints[field.name],
                secret=field.metadata["secret"],
                identity=field.metadata["identity"],
                multiline=field.metadata.get("multiline", False),
                minimum=field.metadata.get("minimum"),
                required=required,
                default=None if required else field.default,
            )
        )
    return found


def read(provider: str, values: Mapping[str, Any], *, stored: Backend | None = None) -> Connection:
    """The connection that these values make. Raises InvalidRequest that names every bad one.

    A secret that is empty or `***` keeps what is stored; None takes it away. Any other setting that is
    missing has its default.
    """
    fields = {field.name: field for field in fields_of(provider)}
    if unknown := sorted(set(values) - set(fields)):
        raise InvalidRequest(f"This backend has no setting called {', '.join(unknown)}.")
    kept = stored.secrets if stored is not None and stored.provider == provider else {}
    settings: dict[str, Any] = {}
    secrets: dict[str, Any] = {}
    problems = []
    for name, field in fields.items():
        value = values.get(name, "" if field.secret else field.default)
        if field.secret and value in ("", MASK):
            value = kept.get(name, "")
        elif value is None:
            value = field.default
        if field.required and value in (None, ""):
            problems.append(f"{field.label} is missing")
            continue
        try:
            value = _typed(field, value)
        except ValueError as error:
            problems.append(f"{field.label} {error}")
            continue
        if value != field.default or field.required:
            (secrets if field.secret else settings)[name] = value
    if problems:
        raise InvalidRequest(f"{'; '.join(problems)}.")
    return Connection(provider=provider, settings=settings, secrets=secrets)


def _typed(field: Field, value: Any) -> Any:
    if field.kind is bool:
        if not isinstance(value, bool):
            raise ValueError("must be true or false")
        return value
    if field.kind in (int, float):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError("must be a number")
        if field.minimum is not None and value < field.minimum:
            raise ValueError(f"must be at least {field.minimum:g}")
        return field.kind(value)
    if not isinstance(value, str):
        raise ValueError("must be text")
    if "\0" in value:
        raise ValueError("holds a NUL character")
    return value.strip()


async def check_urls(connection: Connection) -> None:
    """Resolve and judge every address that this backend would call. Raises UrlRefused."""
    settings = registry.settings_type(connection.provider)(**connection.values)
    if (urls := getattr(settings, "urls", None)) is not None:
        guard = UrlGuard(allow_private=settings.allow_private)
        for url in urls():
            await guard.check(url)


def masked(backend: Backend) -> dict[str, Any]:
    """All settings, for people and the API: a stored secret as `***`, one that is not as empty."""
    shown: dict[str, Any] = {}
    for field in fields_of(backend.provider):
        if field.secret:
            shown[field.name] = MASK if backend.secrets.get(field.name) else ""
        else:
            shown[field.name] = backend.settings.get(field.name, field.default)
    return shown
