"""JSON bodies of the control plane, checked field by field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from sandboxes.errors import InvalidRequest

__all__ = ["Fields", "json_body"]

_MAX_BODY_BYTES = 1024 * 1024


class Fields:
    """A JSON object whose values are fetched by type. Raises InvalidRequest naming the field.

    A field that is absent or null is None (or an empty collection).
    """

    def __init__(self, data: Mapping[str, Any], prefix: str = "") -> None:
        self.data = data
        self._prefix = prefix

    def raw(self, name: str) -> Any:
        return self.data.get(name)

    def text(self, name: str) -> str | None:
        value: str | None = self._typed(name, str, "a string")
        return value

    def required_text(self, name: str) -> str:
        value = self.text(name)
        if not value:
            raise InvalidRequest(f"{self._prefix}{name} is required; give it as a string")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._typed(name, bool, "true or false")
        return default if value is None else value

    def texts(self, name: str) -> list[str]:
        value = self._typed(name, list, "a list of strings") or []
        if not all(isinstance(item, str) for item in value):
            raise self._wrong(name, "a list of strings")
        return value

    def text_map(self, name: str) -> dict[str, str]:
        value = self._typed(name, dict, "an object of strings") or {}
        if not all(isinstance(item, str) for item in value.values()):
            raise self._wrong(name, "an object of strings")
        return value

    def object(self, name: str) -> Fields:
        value = self._typed(name, dict, "an object") or {}
        return Fields(value, f"{self._prefix}{name}.")

    def _typed(self, name: str, kind: type[Any], wanted: str) -> Any:
        value = self.data.get(name)
        if value is not None and not isinstance(value, kind):
            raise self._wrong(name, wanted)
        return value

    def _wrong(self, name: str, wanted: str) -> InvalidRequest:
        return InvalidRequest(f"{self._prefix}{name} must be {wanted}")


async def json_body(request: Request) -> Fields:
    """An empty body is an empty object. InvalidRequest for anything but a JSON object."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > _MAX_BODY_BYTES:
            raise InvalidRequest(f"The request body is larger than {_MAX_BODY_BYTES} bytes")
    if not data:
        return Fields({})
    try:
        parsed = json.loads(data)
    except ValueError:
        raise InvalidRequest("The request body is not valid JSON") from None
    if not isinstance(parsed, dict):
        raise InvalidRequest("The request body must be a JSON object")
    return Fields(parsed)
