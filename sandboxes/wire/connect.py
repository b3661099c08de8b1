"""The Connect protocol as envd speaks it: frames and errors, both ways. Messages are JSON unless the
caller brings another codec; how a stream ended, and what went wrong, is always JSON.

Client and server share this module. Facts: connectrpc.com/docs/protocol, and what the official
SDKs were seen to send. A stream's HTTP status is always 200 once framing starts; its last frame
carries the outcome.
"""

from __future__ import annotations

import enum
import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = [
    "PROTO_STREAM_CONTENT_TYPE",
    "PROTO_UNARY_CONTENT_TYPE",
    "STREAM_CONTENT_TYPE",
    "UNARY_CONTENT_TYPE",
    "Code",
    "ConnectError",
    "Frame",
    "FrameDecoder",
    "decode_json",
    "encode_end",
    "encode_frame",
    "encode_json",
    "encode_message",
    "gunzip",
]

UNARY_CONTENT_TYPE = "application/json"
STREAM_CONTENT_TYPE = "application/connect+json"
PROTO_UNARY_CONTENT_TYPE = "application/proto"
PROTO_STREAM_CONTENT_TYPE = "application/connect+proto"

_HEADER = struct.Struct(">BI")
_COMPRESSED = 0x01
_END_STREAM = 0x02
_MAX_MESSAGE = 64 * 1024 * 1024


class Code(enum.StrEnum):
    CANCELED = "canceled"
    UNKNOWN = "unknown"
    INVALID_ARGUMENT = "invalid_argument"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    NOT_FOUND = "not_found"
    ALREADY_EXISTS = "already_exists"
    PERMISSION_DENIED = "permission_denied"
    RESOURCE_EXHAUSTED = "resource_exhausted"
    FAILED_PRECONDITION = "failed_precondition"
    ABORTED = "aborted"
    OUT_OF_RANGE = "out_of_range"
    UNIMPLEMENTED = "unimplemented"
    INTERNAL = "internal"
    UNAVAILABLE = "unavailable"
    DATA_LOSS = "data_loss"
    UNAUTHENTICATED = "unauthenticated"

    @property
    def http_status(self) -> int:
        return _STATUS[self]


_STATUS = {
    Code.CANCELED: 499,
    Code.UNKNOWN: 500,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.OUT_OF_RANGE: 400,
    Code.UNIMPLEMENTED: 501,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
    Code.DATA_LOSS: 500,
    Code.UNAUTHENTICATED: 401,
}


class ConnectError(Exception):
    """A protocol-level error, in either direction."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def to_json(self) -> dict[str, str]:
        return {"code": self.code.value, "message": self.message}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> ConnectError:
        """An unknown code becomes UNKNOWN; the message is kept."""
        raw = body.get("code")
        code = Code(str(raw)) if raw in Code._value2member_map_ else Code.UNKNOWN
        return cls(code, str(body.get("message") or raw or "no message"))


@dataclass(frozen=True, slots=True)
class Frame:
    """`end` marks the last frame; `message` is then {} or {"error": {...}, "metadata": {...}}."""

    message: dict[str, Any]
    end: bool

    def raise_for_error(self) -> None:
        if self.end and (error := self.message.get("error")):
            raise ConnectError.from_json(error)


def encode_message(message: Mapping[str, Any]) -> bytes:
    return encode_frame(encode_json(message))


def encode_frame(body: bytes) -> bytes:
    """A message that is encoded already."""
    return _HEADER.pack(0, len(body)) + body


def encode_end(error: ConnectError | None = None) -> bytes:
    body = encode_json({"error": error.to_json()} if error else {})
    return _HEADER.pack(_END_STREAM, len(body)) + body


def encode_json(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()


class FrameDecoder:
    """Feed it bytes as they come; it yields whole frames and keeps the rest. `decode` reads a message and
    raises ConnectError for what is none; frames may be compressed if they are said to be `gzipped`."""

    def __init__(
        self, decode: Callable[[bytes], dict[str, Any]] | None = None, *, gzipped: bool = False
    ) -> None:
        self._decode = decode or decode_json
        self._gzipped = gzipped
        self._buffer = bytearray()

    @property
    def mid_frame(self) -> bool:
        """True if the bytes so far end inside a frame: a truncated stream, if no more come."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Raises ConnectError on a frame that is compressed, too large or no message."""
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            flags, length = _HEADER.unpack_from(self._buffer)
            if flags & _COMPRESSED and not self._gzipped:
                raise ConnectError(Code.UNIMPLEMENTED, "compressed frames are not supported")
            if length > _MAX_MESSAGE:
                raise ConnectError(
                    Code.RESOURCE_EXHAUSTED, f"a frame of {length} bytes is too large"
                )
            end = _HEADER.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            if flags & _COMPRESSED:
                body = gunzip(body)
            last = bool(flags & _END_STREAM)
            yield Frame(decode_json(body) if last else self._decode(body), last)


def gunzip(body: bytes) -> bytes:
    """ConnectError for what is no gzip, or would be too large."""
    unpacking = zlib.decompressobj(wbits=31)
    try:
        unpacked = unpacking.decompress(body, _MAX_MESSAGE)
    except zlib.error:
        raise ConnectError(Code.INVALID_ARGUMENT, "a message is not valid gzip") from None
    if unpacking.unconsumed_tail:
        raise ConnectError(Code.RESOURCE_EXHAUSTED, "a message is too large when it is unpacked")
    if not unpacking.eof:
        raise ConnectError(Code.INVALID_ARGUMENT, "a message is cut short")
    return unpacked


def decode_json(body: bytes) -> dict[str, Any]:
    try:
        message = json.loads(body)
    except ValueError:
        raise ConnectError(Code.INVALID_ARGUMENT, "a message is not JSON") from None
    if not isinstance(message, dict):
        raise ConnectError(Code.INVALID_ARGUMENT, "a message is not a JSON object")
    return message
