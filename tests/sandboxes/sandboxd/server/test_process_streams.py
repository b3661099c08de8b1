"""process.Process against real sandboxes."""

from __future__ import annotations

import asyncio
import base64
import signal
import time

import httpx
import pytest

from tests.sandboxes.sandboxd.server.conftest import Create
from tests.sandboxes.sandboxd.server.raw import STREAM, RawSandbox, frame

pytestmark = pytest.mark.sandbox


async def test_start_comes_first_and_one_end_last(sandbox: RawSandbox) -> None:
    done = await sandbox.sh("echo out; echo err >&2; exit 3")

    assert done.events[0] == "start"
    assert done.events[-1] == "end"
    assert done.events.count("end") == 1
    assert (done.stdout, done.stderr) == (b"out\n", b"err\n")
    assert done.end == {
        "exitCode": 3,
        "exited": True,
        "status": "exit status 3",
        "error": "exit status 3",
    }
    assert done.error is None


async def test_exit_zero_leaves_its_code_out(sandbox: RawSandbox) -> None:
    assert (await sandbox.run("/bin/true")).end == {"exited": True, "status": "exit status 0"}


async def test_death_by_signal_is_minus_one(sandbox: RawSandbox) -> None:
    done = await sandbox.sh("kill -KILL $$")
    killed = "signal: killed"
    assert done.end == {"exitCode": -1, "exited": False, "status": killed, "error": killed}


async def test_environment_is_the_sandboxes_then_the_requests(create: Create) -> None:
    sandbox = await create(envVars={"A": "sandbox", "B": "sandbox"})
    done = await sandbox.sh(
        'echo "$A $B $HOME $USER $LOGNAME $LANG $PWD"', process={"envs": {"B": "request"}}
    )
    assert done.stdout == b"sandbox request /home/user user user C.UTF-8 /home/user\n"


async def test_the_user_is_a_selector_not_a_login(sandbox: RawSandbox) -> None:
    root = "Basic " + base64.b64encode(b"root:").decode()
    done = await sandbox.sh("id -un; echo $HOME", headers={"Authorization": root})
    assert done.stdout == b"root\n/root\n"


async def test_a_missing_directory_or_user_is_an_invalid_argument(sandbox: RawSandbox) -> None:
    done = await sandbox.sh("true", process={"cwd": "/nowhere"})
    assert done.error is not None
    assert done.error["code"] == "invalid_argument"
    assert "/nowhere" in done.error["message"]

    nobody = "Basic " + base64.b64encode(b"noone:").decode()
    done = await sandbox.sh("true", headers={"Authorization": nobody})
    assert done.error is not None
    assert done.error["code"] == "invalid_argument"


async def test_a_deadline_kills_the_tree_and_ends_the_stream(sandbox: RawSandbox) -> None:
    began = time.monotonic()
    done = await sandbox.sh("setsid sleep 51.5 & sleep 51.5", headers={"Connect-Timeout-Ms": "400"})

    assert time.monotonic() - began < 3
    assert done.error is not None
    assert done.error["code"] == "deadline_exceeded"
    assert done.end is None
    assert (await sandbox.sh("pgrep -f '[s]leep 51.5' || echo none")).stdout == b"none\n"


async def test_a_client_that_leaves_does_not_kill(sandbox: RawSandbox) -> None:
    start = {"process": {"cmd": "sleep", "args": ["52.5"]}, "tag": "mine"}
    async with sandbox.stream("process.Process/Start", start) as frames:
        _, first = await anext(frames)
    pid = first["event"]["start"]["pid"]

    listed = (await sandbox.call("process.Process/List", {})).json()["processes"]
    assert [(item["pid"], item["tag"]) for item in listed] == [(pid, "mine")]
    assert (await sandbox.sh(f"kill -0 {pid} && echo alive")).stdout == b"alive\n"

    killed = {"process": {"tag": "mine"}, "signal": "SIGNAL_SIGKILL"}
    assert (await sandbox.call("process.Process/SendSignal", killed)).status_code == 200
    again = await sandbox.call("process.Process/SendSignal", killed)
    assert (again.status_code, again.json()["code"]) == (404, "not_found")


async def test_sigkill_reaches_daemonised_children(sandbox: RawSandbox) -> None:
    script = "setsid sleep 53.5 >/dev/null 2>&1 & sleep 53.5"
    start = {"process": {"cmd": "/bin/bash", "args": ["-c", script]}}
    async with sandbox.stream("process.Process/Start", start) as frames:
        _, first = await anext(frames)
        message = {"process": first["event"]["start"], "signal": "SIGNAL_SIGKILL"}
        await sandbox.call("process.Process/SendSignal", message)
        ends = [body["event"]["end"] async for end, body in frames if not end]
    assert ends[-1]["exitCode"] == -1
    assert (await sandbox.sh("pgrep -f '[s]leep 53.5' || echo none")).stdout == b"none\n"


async def test_sigterm_reaches_the_process_alone(sandbox: RawSandbox) -> None:
    script = "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done"
    start = {"process": {"cmd": "/bin/bash", "args": ["-c", script]}}
    async with sandbox.stream("process.Process/Start", start) as frames:
        _, first = await anext(frames)
        await anext(frames)
        message = {"process": first["event"]["start"], "signal": "SIGNAL_SIGTERM"}
        assert (await sandbox.call("process.Process/SendSignal", message)).status_code == 200
        bodies = [body async for end, body in frames if not end]
    assert bodies[-1]["event"]["end"]["exitCode"] == 7


async def test_a_late_client_learns_how_it_ended(sandbox: RawSandbox) -> None:
    done = await sandbox.sh("exit 4")
    late = await sandbox.finish("process.Process/Connect", {"process": {"pid": done.pid}})
    assert late.pid == done.pid
    assert late.end is not None
    assert late.end["exitCode"] == 4

    unknown = await sandbox.finish("process.Process/Connect", {"process": {"pid": 999999}})
    assert unknown.error is not None
    assert unknown.error["code"] == "not_found"


async def test_several_clients_follow_one_process(sandbox: RawSandbox) -> None:
    start = {"process": {"cmd": "/bin/bash", "args": ["-c", "read x; echo got $x"]}}
    async with sandbox.stream("process.Process/Start", start) as frames:
        _, first = await anext(frames)
        process = first["event"]["start"]
        follower = asyncio.ensure_future(
            sandbox.finish("process.Process/Connect", {"process": process})
        )
        await asyncio.sleep(0.1)
        message = {"process": process, "input": {"stdin": base64.b64encode(b"it\n").decode()}}
        assert (await sandbox.call("process.Process/SendInput", message)).status_code == 200
        bodies = [body async for end, body in frames if not end]
    assert base64.b64decode(bodies[0]["event"]["data"]["stdout"]) == b"got it\n"
    assert (await follower).stdout == b"got it\n"


async def test_stdin_streams_in_order_and_closes(sandbox: RawSandbox) -> None:
    async with sandbox.stream("process.Process/Start", {"process": {"cmd": "cat"}}) as frames:
        _, first = await anext(frames)
        process = first["event"]["start"]
        chunks = [f"line {n}\n".encode() for n in range(200)]
        body = frame({"start": {"process": process}}) + b"".join(
            frame({"data": {"input": {"stdin": base64.b64encode(chunk).decode()}}})
            for chunk in chunks
        )
        response = await sandbox.http.post(
            "/process.Process/StreamInput",
            content=body,
            headers=sandbox.headers(**{"Content-Type": STREAM}),
        )
        assert response.content == frame({}) + frame({}, 2)
        closed = await sandbox.call("process.Process/CloseStdin", {"process": process})
        assert closed.status_code == 200
        output = b""
        async for end, message in frames:
            if not end and "data" in message["event"]:
                output += base64.b64decode(message["event"]["data"]["stdout"])
    assert output == b"".join(chunks)


async def test_input_to_a_closed_stdin_is_internal(sandbox: RawSandbox) -> None:
    start = {"process": {"cmd": "sleep", "args": ["54.5"]}, "stdin": False}
    async with sandbox.stream("process.Process/Start", start) as frames:
        _, first = await anext(frames)
        message = {"process": first["event"]["start"], "input": {"stdin": "YQ=="}}
        refused = await sandbox.call("process.Process/SendInput", message)
    assert refused.status_code == 500
    assert refused.json()["code"] == "internal"


async def test_a_terminal_echoes_resizes_and_refuses_stdin(sandbox: RawSandbox) -> None:
    start = {
        "process": {"cmd": "/bin/bash", "args": ["--norc", "-i"]},
        "pty": {"size": {"cols": 80, "rows": 24}},
    }
    async with sandbox.stream("process.Process/Start", start) as frames:
        _, first = await anext(frames)
        process = first["event"]["start"]
        resize = {"process": process, "pty": {"size": {"cols": 123, "rows": 45}}}
        assert (await sandbox.call("process.Process/Update", resize)).status_code == 200
        typed = base64.b64encode(b"stty size; exit\n").decode()
        refused = {"process": process, "input": {"stdin": typed}}
        assert (await sandbox.call("process.Process/SendInput", refused)).status_code == 500
        closed = await sandbox.call("process.Process/CloseStdin", {"process": process})
        assert closed.status_code == 400
        message = {"process": process, "input": {"pty": typed}}
        assert (await sandbox.call("process.Process/SendInput", message)).status_code == 200
        output = b""
        async for end, body in frames:
            if not end and "data" in body["event"]:
                output += base64.b64decode(body["event"]["data"]["pty"])
    assert b"45 123" in output


async def test_ten_megabytes_arrive_whole(sandbox: RawSandbox) -> None:
    done = await sandbox.sh("head -c 10000000 /dev/zero")
    assert len(done.stdout) == 10_000_000
    assert done.stdout.count(0) == 10_000_000


async def test_killing_the_sandbox_breaks_the_stream_without_an_end(sandbox: RawSandbox) -> None:
    seen = []
    start = {"process": {"cmd": "sleep", "args": ["55.5"]}}
    async with sandbox.stream("process.Process/Start", start) as frames:
        await anext(frames)
        assert (await sandbox.http.delete(f"/sandboxes/{sandbox.id}")).status_code == 204
        with pytest.raises(httpx.RemoteProtocolError):
            seen = [body async for _, body in frames]
    assert seen == []

    health = await sandbox.http.get("/health", headers=sandbox.headers())
    assert health.status_code == 502
    assert health.json() == {
        "sandboxId": sandbox.id,
        "message": "The sandbox was not found",
        "code": 502,
    }


async def test_a_stream_takes_only_its_own_content_type(sandbox: RawSandbox) -> None:
    for method, sent in (("Start", "application/json"), ("List", "application/connect+proto")):
        response = await sandbox.http.post(
            f"/process.Process/{method}",
            content=b"{}",
            headers=sandbox.headers(**{"Content-Type": sent}),
        )
        assert response.status_code == 415


async def test_bad_requests_are_answered_not_raised(sandbox: RawSandbox) -> None:
    for message in (
        {},
        {"process": {"cmd": ""}},
        {"process": {"cmd": "x", "args": [1]}},
        {"process": {"cmd": "x", "envs": {"A": 1}}},
        {"process": {"cmd": "a\0b"}},
        {"process": {"cmd": "x"}, "pty": {"size": {"cols": -1, "rows": 5}}},
    ):
        done = await sandbox.finish("process.Process/Start", message)
        assert done.error is not None, message
        assert done.error["code"] == "invalid_argument"
    for method, body in (("SendInput", {}), ("SendSignal", {"process": {"pid": "x"}})):
        response = await sandbox.call(f"process.Process/{method}", body)
        assert (response.status_code, response.json()["code"]) == (400, "invalid_argument")


async def test_a_quiet_process_is_kept_alive(sandbox: RawSandbox) -> None:
    start = {"process": {"cmd": "sleep", "args": ["1.5"]}}
    done = await sandbox.finish("process.Process/Start", start, **{"Keepalive-Ping-Interval": "1"})
    assert "keepalive" in done.events


async def test_a_command_that_is_not_there_exits_127(sandbox: RawSandbox) -> None:
    done = await sandbox.run("no-such-command")
    assert done.end is not None
    assert done.end["exitCode"] == 127


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGHUP])
async def test_signals_have_their_names(sandbox: RawSandbox, number: signal.Signals) -> None:
    done = await sandbox.sh(f"kill -{number.value} $$")
    assert done.end is not None
    names = {signal.SIGSEGV: "signal: segmentation fault", signal.SIGHUP: "signal: hangup"}
    assert done.end["status"] == names[number]


async def test_without_the_token_nothing_runs(sandbox: RawSandbox) -> None:
    for token in ({}, {"X-Access-Token": "wrong"}):
        headers = {**sandbox.headers(), "Content-Type": STREAM}
        del headers["X-Access-Token"]
        response = await sandbox.http.post(
            "/process.Process/Start",
            content=frame({"process": {"cmd": "true"}}),
            headers={**headers, **token},
        )
        assert response.status_code == 401
        assert response.json()["message"].startswith("unauthorized access")


async def test_many_streams_stay_open_at_once(sandbox: RawSandbox) -> None:
    start = {"process": {"cmd": "/bin/bash", "args": ["-c", "read x; echo $x"]}, "tag": "one"}
    limits = httpx.Limits(max_connections=None)
    async with sandbox.stream("process.Process/Start", start) as frames:
        await anext(frames)
        socket_path = sandbox.http._transport._pool._uds  # type: ignore[attr-defined]
        transport = httpx.AsyncHTTPTransport(uds=socket_path, limits=limits)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://sandboxd", timeout=60
        ) as http:
            other = RawSandbox(http, sandbox.reply)
            attach = {"process": {"tag": "one"}}
            followers = [
                asyncio.ensure_future(other.finish("process.Process/Connect", attach))
                for _ in range(500)
            ]
            await asyncio.sleep(2)
            message = {"process": {"tag": "one"}, "input": {"stdin": "aGkK"}}
            await sandbox.call("process.Process/SendInput", message)
            finished = await asyncio.gather(*followers)
    assert {done.stdout for done in finished} == {b"hi\n"}
