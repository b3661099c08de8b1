"""envd's messages in protobuf's binary form, told as the JSON form that everything here works with.

Connect clients choose the form by content type: the official SDKs send JSON, those that were generated for Go
send protobuf. Messages are few and small, so a table of their fields is the whole schema; field numbers
are envd's. Fields that the table lacks are skipped, as protobuf has it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

__all__ = ["METHODS", "Schema", "decode", "encode"]

Kind = Any
"""The name of a scalar, an `_Enum`, a Schema, or a list of one of these."""
Schema = Mapping[str, tuple[int, Kind]]
"""JSON name to field number and kind."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MASK64 = (1 << 64) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_FILE_TYPES = {
    "FILE_TYPE_UNSPECIFIED": 0,
    "FILE_TYPE_FILE": 1,
    "FILE_TYPE_DIRECTORY": 2,
    "FILE_TYPE_SYMLINK": 3,
}
_EVENT_TYPES = {
    "EVENT_TYPE_UNSPECIFIED": 0,
    "EVENT_TYPE_CREATE": 1,
    "EVENT_TYPE_WRITE": 2,
    "EVENT_TYPE_REMOVE": 3,
    "EVENT_TYPE_RENAME": 4,
    "EVENT_TYPE_CHMOD": 5,
}
_SIGNALS = {"SIGNAL_UNSPECIFIED": 0, "SIGNAL_SIGKILL": 9, "SIGNAL_SIGTERM": 15}


class _Enum(dict[str, int]):
    """A number that it lacks stays a number, as in JSON."""


_NOTHING: Schema = {}
_PTY: Schema = {"size": (1, {"cols": (1, "uint32"), "rows": (2, "uint32")})}
_CONFIG: Schema = {
    "cmd": (1, "string"),
    "args": (2, ["string"]),
    "envs": (3, "map"),
    "cwd": (4, "string"),
}
_SELECTOR: Schema = {"pid": (1, "uint32"), "tag": (2, "string")}
_SELECTED: Schema = {"process": (1, _SELECTOR)}
_INPUT: Schema = {"stdin": (1, "bytes"), "pty": (2, "bytes")}
_PROCESS_EVENT: Schema = {
    "start": (1, {"pid": (1, "uint32")}),
    "data": (2, {"stdout": (1, "bytes"), "stderr": (2, "bytes"), "pty": (3, "bytes")}),
    "end": (
        3,
        {
            "exitCode": (1, "sint32"),
            "exited": (2, "bool"),
            "status": (3, "string"),
            "error": (4, "string"),
        },
    ),
    "keepalive": (4, _NOTHING),
}
_EVENTS: Schema = {"event": (1, _PROCESS_EVENT)}
_ENTRY: Schema = {
    "name": (1, "string"),
    "type": (2, _Enum(_FILE_TYPES)),
    "path": (3, "string"),
    "size": (4, "int64"),
    "mode": (5, "uint32"),
    "permissions": (6, "string"),
    "owner": (7, "string"),
    "group": (8, "string"),
    "modifiedTime": (9, "timestamp"),
    "symlinkTarget": (10, "string"),
    "metadata": (11, "map"),
}
_ONE_ENTRY: Schema = {"entry": (1, _ENTRY)}
_PATH: Schema = {"path": (1, "string")}
_WATCH: Schema = {
    "path": (1, "string"),
    "recursive": (2, "bool"),
    "includeEntry": (3, "bool"),
    "allowNetworkMounts": (4, "bool"),
}
_WATCHER: Schema = {"watcherId": (1, "string")}
_FILE_EVENT: Schema = {
    "name": (1, "string"),
    "type": (2, _Enum(_EVENT_TYPES)),
    "entry": (3, _ENTRY),
}

METHODS: Mapping[str, tuple[Schema, Schema]] = {
    "/process.Process/List": (
        _NOTHING,
        {"processes": (1, [{"config": (1, _CONFIG), "pid": (2, "uint32"), "tag": (3, "string")}])},
    ),
    "/process.Process/Start": (
        {"process": (1, _CONFIG), "pty": (2, _PTY), "tag": (3, "string"), "stdin": (4, "bool")},
        _EVENTS,
    ),
    "/process.Process/Connect": (_SELECTED, _EVENTS),
    "/process.Process/Update": ({**_SELECTED, "pty": (2, _PTY)}, _NOTHING),
    "/process.Process/SendInput": ({**_SELECTED, "input": (2, _INPUT)}, _NOTHING),
    "/process.Process/StreamInput": (
        {"start": (1, _SELECTED), "data": (2, {"input": (2, _INPUT)}), "keepalive": (3, _NOTHING)},
        _NOTHING,
    ),
    "/process.Process/SendSignal": ({**_SELECTED, "signal": (2, _Enum(_SIGNALS))}, _NOTHING),
    "/process.Process/CloseStdin": (_SELECTED, _NOTHING),
    "/filesystem.Filesystem/Stat": (_PATH, _ONE_ENTRY),
    "/filesystem.Filesystem/MakeDir": (_PATH, _ONE_ENTRY),
    "/filesystem.Filesystem/Move": (
        {"source": (1, "string"), "destination": (2, "string")},
        _ONE_ENTRY,
    ),
    "/filesystem.Filesystem/ListDir": (
        {"path": (1, "string"), "depth": (2, "uint32")},
        {"entries": (1, [_ENTRY])},
    ),
    "/filesystem.Filesystem/Remove": (_PATH, _NOTHING),
    "/filesystem.Filesystem/WatchDir": (
        _WATCH,
        {"start": (1, _NOTHING), "filesystem": (2, _FILE_EVENT), "keepalive": (3, _NOTHING)},
    ),
    "/filesystem.Filesystem/CreateWatcher": (_WATCH, _WATCHER),
    "/filesystem.Filesystem/GetWatcherEvents": (_WATCHER, {"events": (1, [_FILE_EVENT])}),
    "/filesystem.Filesystem/RemoveWatcher": (_WATCHER, _NOTHING),
}
"""Path of a call to the schemas of its request and its reply."""

_MAP_ENTRY: Schema = {"key": (1, "string"), "value": (2, "string")}
_TIMESTAMP: Schema = {"seconds": (1, "int64"), "nanos": (2, "uint32")}


def decode(schema: Schema, data: bytes) -> dict[str, Any]:
    """A message in its JSON form. ValueError for bytes that are none."""
    fields = {number: (name, kind) for name, (number, kind) in schema.items()}
    message: dict[str, Any] = {}
    for number, raw in _fields(memoryview(data)):
        if number not in fields:
            continue
        name, kind = fields[number]
        if kind == "map":
            pair = decode(_MAP_ENTRY, _bytes(raw))
            message.setdefault(name, {})[pair.get("key", "")] = pair.get("value", "")
        elif isinstance(kind, list):
            message.setdefault(name, []).append(_from_wire(kind[0], raw))
        else:
            message[name] = _from_wire(kind, raw)
    return message


def encode(schema: Schema, message: Mapping[str, Any]) -> bytes:
    """The bytes of a message that is in its JSON form. What the schema lacks is left out."""
    wire = bytearray()
    for name, value in message.items():
        if name not in schema or value is None:
            continue
        number, kind = schema[name]
        if kind == "map":
            for key, text in value.items():
                _append(wire, number, encode(_MAP_ENTRY, {"key": key, "value": text}))
        elif isinstance(kind, list):
            for item in value:
                _append(wire, number, _to_wire(kind[0], item))
        else:
            _append(wire, number, _to_wire(kind, value))
    return bytes(wire)


def _from_wire(kind: Kind, raw: int | memoryview) -> Any:
    if isinstance(kind, _Enum):
        number = _number(raw)
        return next((name for name, known in kind.items() if known == number), number)
    if isinstance(kind, Mapping):
        return decode(kind, _bytes(raw))
    if kind == "string":
        return _bytes(raw).decode()
    if kind == "bytes":
        return base64.b64encode(_bytes(raw)).decode()
    if kind == "bool":
        return bool(_number(raw))
    if kind == "uint32":
        return _number(raw) & 0xFFFFFFFF
    if kind == "sint32":
        number = _number(raw) & 0xFFFFFFFF
        return (number >> 1) ^ -(number & 1)
    if kind == "int64":
        number = _number(raw)
        return str(number - (1 << 64) if number >> 63 else number)
    parts = decode(_TIMESTAMP, _bytes(raw))
    moment = timedelta(
        seconds=int(parts.get("seconds", "0")), microseconds=parts.get("nanos", 0) // 1000
    )
    return (_EPOCH + moment).isoformat().replace("+00:00", "Z")


def _to_wire(kind: Kind, value: Any) -> int | bytes:
    if isinstance(kind, _Enum):
        return kind[value] if isinstance(value, str) else int(value)
    if isinstance(kind, Mapping):
        return encode(kind, value)
    if kind == "string":
        return str(value).encode()
    if kind == "bytes":
        return base64.b64decode(value)
    if kind == "sint32":
        return ((int(value) << 1) ^ (int(value) >> 31)) & 0xFFFFFFFF
    if kind in ("bool", "uint32", "int64"):
        return int(value) & _MASK64
    moment = datetime.fromisoformat(value) - _EPOCH
    seconds, nanos = divmod(moment // timedelta(microseconds=1) * 1000, 1_000_000_000)
    return encode(_TIMESTAMP, {"seconds": seconds, "nanos": nanos})


def _append(wire: bytearray, number: int, value: int | bytes) -> None:
    if isinstance(value, int):
        wire += _varint(number << 3 | _VARINT) + _varint(value)
    else:
        wire += _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    wire = bytearray()
    while value > 0x7F:
        wire.append(value & 0x7F | 0x80)
        value >>= 7
    wire.append(value)
    return bytes(wire)


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _read_varint(data, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = _read_varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind} is unknown")
        if at + size > len(data):
            raise ValueError("a field is cut short")
        yield number, data[at : at + size]
        at += size


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value & _MASK64, at
    raise ValueError("a number is cut short or too long")


def _number(raw: int | memoryview) -> int:
    if isinstance(raw, int):
        return raw
    raise ValueError("a number was expected")


def _bytes(raw: int | memoryview) -> bytes:
    if isinstance(raw, int):
        raise ValueError("bytes were expected")
    return bytes(raw)
