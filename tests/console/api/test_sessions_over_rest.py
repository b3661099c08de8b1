"""The session runtime, over a real uvicorn, Redis and sandboxd."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.console.api.server import Server

pytestmark = pytest.mark.sandbox

EVENTS = {"Accept": "text/event-stream"}
MIB = 1024 * 1024


def run(api: httpx.Client, session: str, command: str, **wish: Any) -> dict[str, Any]:
    answer = api.post(f"{session}/exec", json={"command": command, **wish})
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]  # type: ignore[no-any-return]


def events(response: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    name = ""
    for line in response.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def test_a_session_keeps_its_sandbox(api: httpx.Client, session: str) -> None:
    first = api.post(f"{session}/resolve").json()["data"]
    run(api, session, "echo kept > note")
    again = api.post(f"{session}/resolve").json()["data"]

    assert (first["outcome"], again["outcome"]) == ("created", "connected")
    assert again["sandbox_id"] == first["sandbox_id"]
    assert run(api, session, "cat note")["stdout"] == "kept\n"
    seen = api.get(session).json()["data"]
    assert (seen["bound"], seen["state"], seen["stale"]) == (True, "active", False)


@pytest.mark.parametrize(
    "session_id", ["a/b/c", "../up", "%41 100%", "客户 42", "a?b#c&d=e", "x" * 256, "dot.", "+ +"]
)
def test_any_id_of_the_platform_is_a_session(
    api: httpx.Client, console: Server, session_id: str
) -> None:
    path = console.session(quote(session_id, safe=""))

    assert api.post(f"{path}/turns").json()["data"]["refs"] == 1
    assert api.delete(f"{path}/turns").json()["data"] == {
        "active": False,
        "refs": 0,
        "may_rebuild": True,
    }
    assert api.post(f"{path}/resolve").json()["data"]["session_id"] == session_id
    assert api.get(path).json()["data"]["session_id"] == session_id
    assert api.delete(path).json()["data"] == {"destroyed": True}
    assert api.delete(path).json()["data"] == {"destroyed": False}


@pytest.mark.parametrize("bad", ["a{b", "a}b", "x" * 257, "%20%20", "%0A", "%ff", "%C2%85"])
def test_an_id_that_can_be_none_is_a_clear_refusal(
    api: httpx.Client, console: Server, bad: str
) -> None:
    answer = api.post(f"{console.session(bad)}/resolve")

    assert answer.status_code == 400
    assert answer.json()["error"]["kind"] == "invalid_request"


def test_a_command_gets_what_it_was_sent(api: httpx.Client, session: str) -> None:
    done = run(
        api,
        session,
        "cat; echo $COLOUR; pwd; id -un; echo bad >&2; exit 3",
        stdin="in ä",
        env={"COLOUR": "blue"},
        cwd="/tmp",
    )

    assert done["stdout"] == "in äblue\n/tmp\nuser\n"
    assert (done["stderr"], done["exit_code"], done["killed"]) == ("bad\n", 3, False)


def test_bytes_that_are_no_text_come_in_base64(api: httpx.Client, session: str) -> None:
    raw = bytes(range(256))
    done = run(api, session, "cat", stdin_base64=base64.b64encode(raw).decode())

    assert base64.b64decode(done["stdout_base64"]) == raw


def test_output_past_the_cap_is_dropped_but_the_exit_is_not(
    api: httpx.Client, session: str
) -> None:
    done = run(api, session, "head -c 3000000 /dev/zero; exit 4", max_output_bytes=1000)

    assert (len(done["stdout"]), done["truncated"], done["exit_code"]) == (1000, True, 4)


def test_a_command_that_overruns_is_a_result(api: httpx.Client, session: str) -> None:
    done = run(api, session, "sleep 60 & sleep 60", timeout_s=0.5)

    assert done["killed"] is True
    assert run(api, session, "pgrep -x sleep || echo none")["stdout"] == "none\n"


def test_output_streams_while_the_command_runs(api: httpx.Client, session: str) -> None:
    wish = {"command": "echo one; read line; echo $line >&2; printf '\\344\\275'; exit 5"}
    with api.stream("POST", f"{session}/exec", json=wish, headers=EVENTS) as response:
        assert response.headers["Content-Type"] == "text/event-stream"
        found = list(events(response))

    assert found[0][0] == "start"
    assert found[0][1]["outcome"] == "created"
    text = "".join(data["text"] for name, data in found if name == "stdout")
    assert text == "one\n", "half a character waits for its other half"
    assert found[-1][0] == "exit"
    assert found[-1][1]["exit_code"] == 5
    raw = b"".join(base64.b64decode(d["data"]) for name, d in found if name == "stdout")
    assert raw == b"one\n\xe4\xbd"


def test_a_first_line_arrives_long_before_the_end(api: httpx.Client, session: str) -> None:
    wish = {"command": "echo first; sleep 60", "timeout_s": 120}
    with api.stream("POST", f"{session}/exec", json=wish, headers=EVENTS) as response:
        following = events(response)
        assert next(following)[0] == "start"
        assert next(following) == ("stdout", {"data": "Zmlyc3QK", "text": "first\n"})


def test_a_caller_who_leaves_ends_the_command(api: httpx.Client, session: str) -> None:
    wish = {"command": "sleep 300 & echo on; wait"}
    with api.stream("POST", f"{session}/exec", json=wish, headers=EVENTS) as response:
        for name, _ in events(response):
            if name == "stdout":
                break
    with pytest.raises(httpx.ReadTimeout):
        api.post(f"{session}/exec", json={"argv": ["sleep", "301"]}, timeout=1.0)

    gone = "for n in $(seq 100); do pgrep -x sleep >/dev/null || exit 0; sleep 0.1; done; exit 9"
    # The waiting shell's own sleep has another command line.
    gone = gone.replace("pgrep -x sleep", "pgrep -f 'sleep 30[01]$'")
    assert run(api, session, gone)["exit_code"] == 0


def test_a_wrong_command_is_an_event_in_the_stream(api: httpx.Client, session: str) -> None:
    wish = {"argv": ["true"], "cwd": "/nowhere"}
    with api.stream("POST", f"{session}/exec", json=wish, headers=EVENTS) as response:
        [(name, data)] = list(events(response))

    assert (name, data["kind"]) == ("error", "invalid_request")
    assert api.post(f"{session}/exec", json=wish).status_code == 400


def test_only_who_may_operate_runs_as_another_account(
    api: httpx.Client, console: Server, session: str
) -> None:
    wish = {"argv": ["id", "-un"], "user": "root"}
    refused = api.post(f"{session}/exec", json=wish, headers=console.headers("run"))

    assert refused.status_code == 403
    assert api.post(f"{session}/exec", json=wish).json()["data"]["stdout"] == "root\n"


def test_a_skill_runs_by_its_name(api: httpx.Client, session: str) -> None:
    wish = {"script": "scripts/greet.py", "args": ["Ada"], "stdin": "hi"}
    done = api.post(f"{session}/skills/greeter/run", json=wish).json()["data"]

    assert done["stdout"] == "hello Ada hi\n"
    for name, script in (("greeter", "scripts/no.py"), ("nobody", "x.py"), ("..", "x")):
        refused = api.post(f"{session}/skills/{quote(name, safe='')}/run", json={"script": script})
        assert refused.status_code in (400, 404), (name, refused.text)
    leading_out = api.post(f"{session}/skills/greeter/run", json={"script": "../../../x.py"})
    assert leading_out.json()["error"]["kind"] == "invalid_request"


def test_skills_are_disclosed_level_by_level(api: httpx.Client, console: Server) -> None:
    skills = f"/api/v1/spaces/{console.facts['space']}/skills"
    [one] = api.get(skills).json()["data"]

    assert (one["name"], one["description"]) == ("greeter", "Greets whoever is named.")
    level_2 = api.get(f"{skills}/greeter").json()["data"]
    assert level_2["instructions"].strip().startswith("# Greeter")
    assert level_2["scripts"] == ["scripts/greet.py"]
    paths = [file["path"] for file in api.get(f"{skills}/greeter/files").json()["data"]]
    assert paths == ["SKILL.md", "scripts/greet.py"]
    assert b"hello" in api.get(f"{skills}/greeter/file?path=scripts/greet.py").content
    assert api.get(f"{skills}/greeter/file?path=../x").status_code == 404
    assert api.get(f"{skills}/nobody").status_code == 404


def test_large_files_pass_through_with_flat_memory(
    api: httpx.Client, console: Server, session: str
) -> None:
    api.post(f"{session}/resolve")
    before = memory_kb(console)
    block = b"0123456789abcdef" * 4096
    content = (block for _ in range(100 * MIB // len(block)))

    written = api.put(f"{session}/files?path=big.bin", content=content)
    assert written.status_code == 200
    assert written.json()["data"]["size_bytes"] == 100 * MIB
    size = 0
    with api.stream("GET", f"{session}/files?path=big.bin") as response:
        for chunk in response.iter_bytes():
            size += len(chunk)
    assert size == 100 * MIB
    assert memory_kb(console) - before < 40 * 1024


def memory_kb(console: Server) -> int:
    with open(f"/proc/{console.process.pid}/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1])  # type: ignore[index]


def test_files_are_the_workspace_s_own(api: httpx.Client, session: str) -> None:
    run(api, session, "ln -s /etc/passwd link; mkdir -p d; echo x > d/f")

    assert api.get(f"{session}/files?path=link").status_code == 400
    assert api.get(f"{session}/files?path=/etc/passwd").status_code == 400
    assert api.get(f"{session}/files?path=d").status_code == 400
    assert api.get(f"{session}/files?path=missing").status_code == 404
    assert api.get(f"{session}/files").status_code == 400
    assert api.get(f"{session}/files?path=d/f").content == b"x\n"
    assert api.delete(f"{session}/files?path=d").status_code == 204
    assert api.delete(f"{session}/files?path=d").status_code == 204
    assert api.get(f"{session}/files/stat?path=d").status_code == 404
    made = api.post(f"{session}/files/list", json={"path": "new/folder"})
    assert made.json()["data"]["type"] == "directory"
    listed = api.get(f"{session}/files/list?path=new").json()["data"]["entries"]
    assert [entry["name"] for entry in listed] == ["folder"]


def test_reading_makes_no_sandbox(api: httpx.Client, console: Server) -> None:
    path = console.session("never-used")

    assert api.get(f"{path}/outputs").json()["data"] == {"entries": [], "total_bytes": 0}
    for part in ("files?path=x", "files/list", "outputs/file?path=x", "outputs/archive"):
        assert api.get(f"{path}/{part}").json()["error"]["kind"] == "not_found", part
    assert api.get(path).status_code == 404


def test_pause_keeps_memory_and_the_next_call_wakes(api: httpx.Client, session: str) -> None:
    run(api, session, "nohup sleep 500 >/dev/null 2>&1 &")
    assert api.post(f"{session}/pause").json()["data"]["state"] == "paused"

    assert run(api, session, "pgrep -fc '^sleep 500'")["stdout"] == "1\n"
    kinds = [event["kind"] for event in api.get(f"{session}/history").json()["data"]]
    assert kinds == ["resumed", "paused", "created"]


def test_a_paused_session_is_woken_and_a_running_one_renewed(
    api: httpx.Client, session: str
) -> None:
    old = run(api, session, "touch /workspace/mine")["sandbox_id"]
    api.post(f"{session}/inputs", files=[("files", ("in.txt", b"handed in"))])
    api.post(f"{session}/pause")
    woken = api.post(f"{session}/resume").json()["data"]
    assert (woken["state"], woken["sandbox_id"]) == ("active", old)

    api.post(f"{session}/turns")
    assert api.post(f"{session}/rebuild").json()["data"] == {"rebuilt": False}
    api.delete(f"{session}/turns")
    assert api.post(f"{session}/rebuild").json()["data"] == {"rebuilt": True}
    new = run(api, session, "cat input/in.txt; test ! -e mine")
    assert new["sandbox_id"] != old
    assert (new["stdout"], new["exit_code"]) == ("handed in", 0)


def test_what_was_handed_in_is_listed_and_taken_back(api: httpx.Client, session: str) -> None:
    api.post(f"{session}/inputs", files=[("files", (name, name.encode())) for name in ("a", "b")])
    listed = api.get(f"{session}/inputs").json()["data"]
    assert listed == [{"path": f"/workspace/input/{name}", "size_bytes": 1} for name in ("a", "b")]

    for path in ("a", "/workspace/input/a", "never"):
        assert api.delete(f"{session}/inputs", params={"path": path}).status_code == 204
    assert run(api, session, "ls input")["stdout"] == "b\n"
    api.post(f"{session}/rebuild")
    assert run(api, session, "ls input")["stdout"] == "b\n"
    outside = api.delete(f"{session}/inputs", params={"path": "../output/x"})
    assert (outside.status_code, outside.json()["error"]["kind"]) == (400, "invalid_request")


def test_callers_at_once_share_one_sandbox(api: httpx.Client, session: str) -> None:
    def resolve(_: int) -> tuple[str, str]:
        found = api.post(f"{session}/resolve").json()["data"]
        return found["outcome"], found["sandbox_id"]

    with ThreadPoolExecutor(16) as callers:
        found = list(callers.map(resolve, range(32)))

    assert len({sandbox for _, sandbox in found}) == 1
    assert [outcome for outcome, _ in found].count("created") == 1


def test_many_commands_wait_side_by_side(api: httpx.Client, console: Server, session: str) -> None:
    api.post(f"{session}/resolve")
    ready = threading.Barrier(20)

    def wait(_: int) -> int:
        ready.wait()
        return int(run(api, session, "sleep 1")["exit_code"])

    with ThreadPoolExecutor(20) as callers:
        assert list(callers.map(wait, range(20))) == [0] * 20
