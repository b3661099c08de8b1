"""The ORM outside of Django's own request cycle."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import close_old_connections

__all__ = ["Database"]


class Database:
    """Around the queries of one request: a thread of their own, and the connection given back."""

    def __init__(self) -> None:
        self._context = ThreadSensitiveContext()

    async def __aenter__(self) -> Self:
        await self._context.__aenter__()  # type: ignore[no-untyped-call]
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await sync_to_async(close_old_connections)()
        finally:
            await self._context.__aexit__(exc_type, exc, traceback)  # type: ignore[no-untyped-call]
