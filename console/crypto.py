"""Secrets at rest. The first of settings.FIELD_KEYS encrypts, all of them decrypt."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import models

__all__ = ["EncryptedJSONField", "decrypt", "encrypt"]

if TYPE_CHECKING:
    _TextField = models.TextField[Any, Any]
else:
    _TextField = models.TextField


@lru_cache(maxsize=4)
def _fernet(keys: tuple[str, ...]) -> MultiFernet:
    if not keys:
        raise ImproperlyConfigured(
            "SKILLYARD_FIELD_KEYS is not set, so no secret can be stored or read. `make up` makes "
            "one on its first run; docs/operations.md says how to set your own."
        )
    try:
        return MultiFernet([Fernet(key) for key in keys])
    except ValueError as error:
        raise ImproperlyConfigured(
            "SKILLYARD_FIELD_KEYS must hold Fernet keys (44 characters of URL-safe base64)."
        ) from error


def encrypt(text: str) -> str:
    return _fernet(tuple(settings.FIELD_KEYS)).encrypt(text.encode()).decode()


def decrypt(token: str) -> str:
    """Raises ImproperlyConfigured if none of the keys fits: the key that wrote it is missing."""
    try:
        return _fernet(tuple(settings.FIELD_KEYS)).decrypt(token.encode()).decode()
    except InvalidToken as error:
        raise ImproperlyConfigured(
            "A stored secret can't be read with the present SKILLYARD_FIELD_KEYS; add the old key "
            "at the end of the list."
        ) from error


class EncryptedJSONField(_TextField):
    """A JSON object that is encrypted in the database. Never filtered on, never shown."""

    _pyi_private_set_type: Any
    _pyi_private_get_type: Any

    def get_prep_value(self, value: Any) -> Any:
        return encrypt(json.dumps(value, separators=(",", ":"), sort_keys=True))

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> Any:
        return None if value is None else json.loads(decrypt(value))

    def to_python(self, value: Any) -> Any:
        return value

    def value_to_string(self, obj: models.Model) -> str:
        return str(self.get_prep_value(self.value_from_object(obj)))
