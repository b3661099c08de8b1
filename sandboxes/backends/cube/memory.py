"""What one process remembers of the sandboxes it has met; the oldest is forgotten when there are too many."""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["Memory"]

Value = TypeVar("Value")
_AT_MOST = 10_000


class Memory(Generic[Value]):
    def __init__(self) -> None:
        self._values: dict[str, Value] = {}

    def keep(self, key: str, value: Value | None) -> None:
        """None is nothing to keep."""
        if value is None:
            return
        self._values.pop(key, None)
        self._values[key] = value
        if len(self._values) > _AT_MOST:
            del self._values[next(iter(self._values))]

    def get(self, key: str) -> Value | None:
        return self._values.get(key)

    def forget(self, key: str) -> None:
        self._values.pop(key, None)
