"""The rows of a list as CSV or JSON, made while they are sent: memory does not grow with the list."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from django.utils import timezone

if TYPE_CHECKING:
    from console.web.lists.page import Column, ListPage

__all__ = ["FORMATS", "export"]

_CHUNK_ROWS = 500
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What a spreadsheet takes for the beginning of a formula."""


def export(definition: ListPage, rows: QuerySet[Any], kind: str) -> StreamingHttpResponse:
    """`rows` as a file; `kind` is one of FORMATS."""
    write, content_type = FORMATS[kind]
    response = StreamingHttpResponse(
        _sent(write(definition.columns, rows.iterator(chunk_size=_CHUNK_ROWS))),
        content_type=content_type,
    )
    name = f"{definition.name}-{timezone.now():%Y%m%d-%H%M%S}.{kind}"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


async def _sent(chunks: Iterator[str]) -> AsyncIterator[str]:
    """Each chunk is made in the thread where the request's database connection lives."""
    while chunk := await sync_to_async(lambda: next(chunks, ""))():
        yield chunk


def _csv(columns: Iterable[Column], rows: Iterator[Any]) -> Iterator[str]:
    columns = list(columns)
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    # Excel takes a file without the mark for one in its own old encoding, and garbles Chinese.
    buffer.write("\ufeff")
    writer.writerow([column.name for column in columns])
    while True:
        batch = list(islice(rows, _CHUNK_ROWS))
        writer.writerows([_cell(column.of(row)) for column in columns] for row in batch)
        yield buffer.getvalue()
        if len(batch) < _CHUNK_ROWS:
            return
        buffer.seek(0)
        buffer.truncate()


def _json(columns: Iterable[Column], rows: Iterator[Any]) -> Iterator[str]:
    columns = list(columns)
    before = "["
    while batch := list(islice(rows, _CHUNK_ROWS)):
        objects = (
            json.dumps(
                {column.name: _plain(column.of(row)) for column in columns}, ensure_ascii=False
            )
            for row in batch
        )
        yield before + ",\n".join(objects)
        before = ",\n"
    yield "[]\n" if before == "[" else "]\n"


def _plain(value: Any) -> Any:
    """As JSON has it; times in UTC."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if value is None or isinstance(value, bool | int | float | str | list | dict):
        return value
    return str(value)


def _cell(value: Any) -> Any:
    """As CSV has it: no formula, whatever somebody called their session."""
    value = _plain(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict):
        value = json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value


FORMATS: dict[str, tuple[Callable[[Iterable[Column], Iterator[Any]], Iterator[str]], str]] = {
    "csv": (_csv, "text/csv; charset=utf-8"),
    "json": (_json, "application/json"),
}
