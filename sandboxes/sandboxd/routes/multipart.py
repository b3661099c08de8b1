"""multipart/form-data as a stream of parts, with flat memory and file names left as they are.

Web frameworks strip directories from `filename`; the E2B protocol carries whole paths in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header

from sandboxes.errors import InvalidRequest

__all__ = ["Part", "parts"]

_MAX_HEADER_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Part:
    """Read `data` to its end before asking for the next part."""

    name: str
    filename: str | None
    data: AsyncIterator[bytes]


class _End:
    """The end of one part."""


_Event = Part | bytes | _End


async def parts(content_type: str, chunks: AsyncIterator[bytes]) -> AsyncIterator[Part]:
    """Raises InvalidRequest for a body that is not what its content type says."""
    reader = _Reader(content_type, chunks)
    while (part := await reader.next_part()) is not None:
        yield part


class _Reader:
    def __init__(self, content_type: str, chunks: AsyncIterator[bytes]) -> None:
        _, options = parse_options_header(content_type)
        boundary = options.get(b"boundary")
        if not boundary:
            raise InvalidRequest("The multipart Content-Type has no boundary")
        self._chunks = chunks
        self._events: deque[_Event] = deque()
        self._header = bytearray()
        self._value = bytearray()
        self._headers: dict[bytes, bytes] = {}
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._headers.clear,
                "on_header_field": self._on_header_field,
                "on_header_value": self._on_header_value,
                "on_header_end": self._on_header_end,
                "on_headers_finished": self._on_headers_finished,
                "on_part_data": self._on_part_data,
                "on_part_end": self._on_part_end,
            },
        )

    async def next_part(self) -> Part | None:
        while (event := await self._next()) is not None:
            if isinstance(event, Part):
                return event
        return None

    async def _data(self) -> AsyncIterator[bytes]:
        while True:
            event = await self._next()
            if isinstance(event, bytes):
                yield event
            elif isinstance(event, _End):
                return
            else:
                raise InvalidRequest("The multipart body ends inside a part")

    async def _next(self) -> _Event | None:
        while not self._events:
            try:
                chunk = await anext(self._chunks)
            except StopAsyncIteration:
                return None
            try:
                self._parser.write(chunk)
            except MultipartParseError:
                raise InvalidRequest("The multipart body is malformed") from None
        return self._events.popleft()

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]
        self._check_size()

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]
        self._check_size()

    def _check_size(self) -> None:
        if len(self._header) + len(self._value) > _MAX_HEADER_BYTES:
            raise InvalidRequest("A multipart header is too long")

    def _on_header_end(self) -> None:
        self._headers[bytes(self._header).lower()] = bytes(self._value)
        self._header.clear()
        self._value.clear()

    def _on_headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition"))
        filename = options.get(b"filename")
        self._events.append(
            Part(
                name=options.get(b"name", b"").decode(errors="replace"),
                filename=None if filename is None else filename.decode(errors="surrogateescape"),
                data=self._data(),
            )
        )

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._events.append(data[start:end])

    def _on_part_end(self) -> None:
        self._events.append(_End())
