"""Messages in binary form, against classes that were generated from envd's own definitions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from e2b.envd.filesystem import filesystem_pb
from e2b.envd.process import process_pb
from hypothesis import given
from hypothesis import strategies as st

from sandboxes.wire import proto

ENTRY = {
    "name": "a",
    "type": "FILE_TYPE_FILE",
    "path": "/ü/a",
    "size": str(1 << 40),
    "mode": 420,
    "permissions": "-rw-r--r--",
    "owner": "user",
    "group": "user",
    "modifiedTime": "2026-11-30T08:34:21.123456Z",
    "symlinkTarget": "/b",
    "metadata": {"author": "me", "": "empty"},
}
CONFIG = {"cmd": "/bin/bash", "args": ["-l", "-c", "echo ü"], "envs": {"A": "b"}, "cwd": "/tmp"}
MESSAGES: list[tuple[str, int, Any, dict[str, Any]]] = [
    ("/process.Process/List", 1, process_pb.ListResponse, {"processes": [{"config": CONFIG, "pid": 7, "tag": "t"}]}),
    ("/process.Process/Start", 0, process_pb.StartRequest, {"process": CONFIG, "pty": {"size": {"cols": 80, "rows": 24}}, "tag": "t", "stdin": False}),
    ("/process.Process/Start", 1, process_pb.StartResponse, {"event": {"start": {"pid": 4294967295}}}),
    ("/process.Process/Start", 1, process_pb.StartResponse, {"event": {"data": {"stdout": "AP8="}}}),
    ("/process.Process/Start", 1, process_pb.StartResponse, {"event": {"keepalive": {}}}),
    ("/process.Process/Connect", 1, process_pb.ConnectResponse, {"event": {"end": {"exitCode": -1, "exited": True, "status": "signal: killed", "error": "x"}}}),
    ("/process.Process/Connect", 0, process_pb.ConnectRequest, {"process": {"tag": "t"}}),
    ("/process.Process/Update", 0, process_pb.UpdateRequest, {"process": {"pid": 3}, "pty": {"size": {"cols": 1, "rows": 2}}}),
    ("/process.Process/SendInput", 0, process_pb.SendInputRequest, {"process": {"pid": 3}, "input": {"pty": "YQ=="}}),
    ("/process.Process/StreamInput", 0, process_pb.StreamInputRequest, {"start": {"process": {"pid": 3}}}),
    ("/process.Process/StreamInput", 0, process_pb.StreamInputRequest, {"data": {"input": {"stdin": "YQ=="}}}),
    ("/process.Process/SendSignal", 0, process_pb.SendSignalRequest, {"process": {"pid": 3}, "signal": "SIGNAL_SIGKILL"}),
    ("/process.Process/CloseStdin", 0, process_pb.CloseStdinRequest, {"process": {"pid": 3}}),
    ("/filesystem.Filesystem/Stat", 1, filesystem_pb.StatResponse, {"entry": ENTRY}),
    ("/filesystem.Filesystem/Move", 0, filesystem_pb.MoveRequest, {"source": "a", "destination": "b"}),
    ("/filesystem.Filesystem/ListDir", 0, filesystem_pb.ListDirRequest, {"path": "/", "depth": 2}),
    ("/filesystem.Filesystem/ListDir", 1, filesystem_pb.ListDirResponse, {"entries": [ENTRY, {"name": "b"}]}),
    ("/filesystem.Filesystem/WatchDir", 0, filesystem_pb.WatchDirRequest, {"path": "w", "recursive": True, "includeEntry": True, "allowNetworkMounts": True}),
    ("/filesystem.Filesystem/WatchDir", 1, filesystem_pb.WatchDirResponse, {"filesystem": {"name": "a", "type": "EVENT_TYPE_RENAME", "entry": ENTRY}}),
    ("/filesystem.Filesystem/CreateWatcher", 1, filesystem_pb.CreateWatcherResponse, {"watcherId": "w1"}),
    ("/filesystem.Filesystem/GetWatcherEvents", 1, filesystem_pb.GetWatcherEventsResponse, {"events": [{"name": "a", "type": "EVENT_TYPE_WRITE"}]}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "side", "generated", "message"), MESSAGES)
def test_both_ways_as_generated(
    path: str, side: int, generated: Any, message: dict[str, Any]
) -> None:
    schema = proto.METHODS[path][side]
    theirs = generated.from_json(json.dumps(message))
    assert generated.from_binary(proto.encode(schema, message)) == theirs
    assert proto.decode(schema, theirs.to_binary()) == message


def test_what_is_not_known_is_skipped() -> None:
    schema = proto.METHODS["/process.Process/SendSignal"][0]
    known = proto.encode(schema, {"process": {"pid": 3}, "signal": "SIGNAL_SIGTERM", "more": 1})
    unknown = b"\x78\x01" + b"\x7d\x00\x00\x00\x00" + b"\x79" + bytes(8) + b"\x7a\x01x"
    assert proto.decode(schema, unknown + known) == {
        "process": {"pid": 3},
        "signal": "SIGNAL_SIGTERM",
    }
    # A signal without a name stays a number, for the handler to refuse.
    assert proto.decode(schema, b"\x10\x0a") == {"signal": 10}


@given(st.sampled_from(sorted(proto.METHODS)), st.binary(max_size=64))
def test_any_bytes_are_a_message_or_a_value_error(path: str, data: bytes) -> None:
    schema = proto.METHODS[path][0]
    try:
        message = proto.decode(schema, data)
    except ValueError:
        return
    assert proto.decode(schema, proto.encode(schema, message)) == message
