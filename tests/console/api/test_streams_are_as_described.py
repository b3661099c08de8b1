"""Each event of a real stream is what the OpenAPI document says of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest

from console.api.reference.document import document, operations
from tests.console.api.server import Server

EVENTS = {"Accept": "text/event-stream"}


def as_json_schema(schema: Any) -> Any:
    """What OpenAPI 3.0 says in words of its own."""
    if isinstance(schema, list):
        return [as_json_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: as_json_schema(value) for key, value in schema.items()}
    if found.pop("nullable", False):
        return {"anyOf": [{"type": "null"}, found]}
    return found


def described(operation: str) -> jsonschema.Draft202012Validator:
    """Of the events that this operation streams."""
    found = [
        method["responses"]["200"]["content"]["text/event-stream"]["schema"]
        for path in document()["paths"].values()
        for method in path.values()
        if method["operationId"] == operation
    ]
    root = {**found[0], "components": document()["components"]}
    return jsonschema.Draft202012Validator(as_json_schema(root))


def events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """As the document has them: the name, the data as JSON, the id if there is one."""
    fields: dict[str, Any] = {}
    for line in response.iter_lines():
        name, colon, value = line.partition(": ")
        if line and name:
            assert colon, line
            fields[name] = json.loads(value) if name == "data" else value
        elif fields:
            yield fields
            fields = {}
    assert not fields, "the stream ends with an empty line"


def check(operation: str, streamed: list[dict[str, Any]]) -> None:
    validator = described(operation)
    for event in streamed:
        validator.validate(event)


def test_an_event_of_another_shape_is_noticed() -> None:
    validator = described("sessions_exec")
    good = {"event": "exit", "data": {"exit_code": 0, "killed": False, "duration_s": 0.1}}
    assert validator.is_valid(good)
    assert not validator.is_valid({**good, "event": "end"})
    assert not validator.is_valid({**good, "data": {"exit_code": "0"}})
    assert not described("builds_log").is_valid({"event": "line", "data": {}, "id": "1"})


def test_the_page_for_people_names_each_event() -> None:
    (exec_,) = [item for item in operations()["sessions"] if item.id == "sessions_exec"]
    (rows,) = [rows for status, _, rows in exec_.answers if status == "200"]
    names = [row.name for row in rows]
    for name in ("start", "stdout", "stderr", "exit", "error"):
        assert f"event {name}" in names
    assert {"start.data.pid", "stdout.data.text", "error.data.kind"} <= set(names)


@pytest.mark.sandbox
class TestReal:
    def stream(self, api: httpx.Client, path: str, **wish: Any) -> list[dict[str, Any]]:
        with api.stream("POST", path, json=wish, headers=EVENTS) as response:
            assert response.headers["Content-Type"] == "text/event-stream"
            return list(events(response))

    @pytest.mark.parametrize(
        ("wish", "names"),
        [
            (
                {"command": "echo out; sleep 0.1; echo err >&2; exit 3"},
                ["start", "stdout", "stderr", "exit"],
            ),
            ({"command": "printf '\\377'"}, ["start", "stdout", "exit"]),
            ({"command": "sleep 60", "timeout_s": 0.2}, ["start", "exit"]),
            ({"argv": ["true"], "cwd": "/nowhere"}, ["error"]),
        ],
        ids=["both outputs", "no UTF-8", "overrun", "refused"],
    )
    def test_a_command(
        self, api: httpx.Client, session: str, wish: dict[str, Any], names: list[str]
    ) -> None:
        streamed = self.stream(api, f"{session}/exec", **wish)

        check("sessions_exec", streamed)
        assert [event["event"] for event in streamed] == names

    def test_a_script_of_a_skill(self, api: httpx.Client, session: str) -> None:
        path = f"{session}/skills/greeter/run"
        streamed = self.stream(api, path, script="scripts/greet.py", args=["Ada"])

        check("sessions_run_skill", streamed)
        assert [event["event"] for event in streamed] == ["start", "stdout", "exit"]

    def test_a_session_that_ends_under_its_command(self, api: httpx.Client, session: str) -> None:
        wish = {"command": "echo on; sleep 60"}
        streamed = []
        with api.stream("POST", f"{session}/exec", json=wish, headers=EVENTS) as response:
            for event in events(response):
                streamed.append(event)
                if event["event"] == "stdout":
                    ending = threading.Thread(target=api.delete, args=[session])
                    ending.start()
        ending.join()

        check("sessions_exec", streamed)
        assert streamed[-1]["event"] in ("error", "exit")
        assert [event["event"] for event in streamed].count("exit") <= 1

    def test_a_build_log_from_its_middle_on(self, console: Server, api: httpx.Client) -> None:
        path = f"/api/v1/spaces/{console.facts['space']}/builds/{console.facts['build']}/log"
        with api.stream("GET", path, headers=EVENTS) as response:
            whole = list(events(response))
        middle = whole[len(whole) // 2]["id"]
        with api.stream("GET", path, headers={**EVENTS, "Last-Event-ID": middle}) as response:
            rest = list(events(response))

        check("builds_log", whole)
        check("builds_log", rest)
        assert [event["event"] for event in whole[-2:]] == ["line", "end"]
        assert whole[len(whole) // 2 + 1 :] == rest
