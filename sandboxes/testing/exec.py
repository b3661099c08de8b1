"""Commands: what they get, what they give, and how they end."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from sandboxes.client import SandboxClient
from sandboxes.errors import InvalidRequest
from sandboxes.testing.base import Contract, SandboxFactory, chunks, shell, text_of
from sandboxes.types import (
    ExecExit,
    ExecOutput,
    ExecRequest,
    ExecResult,
    ExecStarted,
    Sandbox,
    Stream,
)

__all__ = ["ExecInputContract", "ExecOutputContract", "ExecResultContract"]

MIB = 1024 * 1024


async def run(client: SandboxClient, box: Sandbox, *argv: str, **options: Any) -> ExecResult:
    return await client.run(box, ExecRequest(argv=argv, **options))


class ExecInputContract(Contract):
    """Arguments, environment, directory, user and standard input."""

    async def test_argv_meets_no_shell(self, client: SandboxClient, box: Sandbox) -> None:
        words = ("a b", "$HOME", "*", "", "-n", "'\"`", "line\nbreak", "图表", ";exit 3")
        result = await run(client, box, "printf", "[%s]", *words)
        assert result.stdout.decode() == "".join(f"[{word}]" for word in words)

    async def test_shell_argv_is_a_login_shell(self, client: SandboxClient, box: Sandbox) -> None:
        assert (
            await text_of(client, box, "shopt -q login_shell && echo $((6 * 7)) | tr 4 x") == "x2\n"
        )

    async def test_env_reaches_the_command(
        self, client: SandboxClient, sandbox: SandboxFactory
    ) -> None:
        box = await sandbox(env={"FROM_BOX": "box", "BOTH": "box"})
        env = {"BOTH": "request", "ODD": "a=b c\n'\"$x 图"}
        result = await run(client, box, "/usr/bin/env", "-0", env=env)
        seen = _environment(result.stdout)
        assert seen["FROM_BOX"] == "box"
        assert seen["BOTH"] == "request"
        assert seen["ODD"] == env["ODD"]

    async def test_the_environment_is_a_users(self, client: SandboxClient, box: Sandbox) -> None:
        seen = _environment((await run(client, box, "/usr/bin/env", "-0")).stdout)
        assert seen["HOME"] == "/home/user"
        assert seen["USER"] == seen["LOGNAME"] == "user"
        assert "/usr/bin" in seen["PATH"].split(":")

    async def test_cwd(self, client: SandboxClient, box: Sandbox) -> None:
        assert (await run(client, box, "pwd", cwd="/usr/lib")).stdout == b"/usr/lib\n"

    async def test_a_missing_cwd_is_an_invalid_request(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        with pytest.raises(InvalidRequest):
            await run(client, box, "pwd", cwd="/no/such/directory")

    async def test_the_default_user_is_unprivileged(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        assert (await run(client, box, "id", "-u")).stdout == b"1000\n"
        assert not (await run(client, box, "touch", "/etc/not-allowed")).ok

    async def test_root_is_root_inside(self, client: SandboxClient, box: Sandbox) -> None:
        assert await text_of(client, box, "id -u; echo $HOME", user="root") == "0\n/root\n"

    async def test_an_unknown_user_is_an_invalid_request(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        with pytest.raises(InvalidRequest):
            await run(client, box, "id", user="nobody-of-that-name")

    async def test_no_stdin_is_an_empty_one(self, client: SandboxClient, box: Sandbox) -> None:
        result = await run(client, box, "cat", timeout_s=10)
        assert (result.stdout, result.exit_code) == (b"", 0)

    async def test_stdin_from_bytes(self, client: SandboxClient, box: Sandbox) -> None:
        data = bytes(range(256)) * 4096
        assert (await run(client, box, "cat", stdin=data)).stdout == data

    async def test_empty_bytes_end_the_input(self, client: SandboxClient, box: Sandbox) -> None:
        assert (await run(client, box, "wc", "-c", stdin=b"", timeout_s=10)).stdout == b"0\n"

    async def test_stdin_from_an_iterable(self, client: SandboxClient, box: Sandbox) -> None:
        digest = hashlib.sha256()

        async def source() -> AsyncIterator[bytes]:
            async for chunk in chunks(5 * MIB):
                digest.update(chunk)
                yield chunk

        result = await run(client, box, "sha256sum", stdin=source())
        assert result.stdout.split()[0].decode() == digest.hexdigest()

    async def test_input_and_output_flow_at_once(self, client: SandboxClient, box: Sandbox) -> None:
        data = b"".join([chunk async for chunk in chunks(8 * MIB)])
        assert (await run(client, box, "cat", stdin=data)).stdout == data

    async def test_input_need_not_be_read(self, client: SandboxClient, box: Sandbox) -> None:
        assert (await run(client, box, "true", stdin=b"x" * (4 * MIB), timeout_s=30)).exit_code == 0

    async def test_a_failing_source_fails_the_exec_and_kills_it(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        async def source() -> AsyncIterator[bytes]:
            yield b"some"
            raise RuntimeError("the source broke")

        with pytest.raises(RuntimeError, match="the source broke"):
            await run(client, box, "sh", "-c", "cat; exec sleep 7001", stdin=source())
        assert await text_of(client, box, "pgrep -fc '[s]leep 7001' || true") == "0\n"


class ExecOutputContract(Contract):
    async def test_streams_are_apart(self, client: SandboxClient, box: Sandbox) -> None:
        result = await shell(client, box, "echo out; echo err >&2")
        assert (result.stdout, result.stderr) == (b"out\n", b"err\n")

    async def test_events_come_in_order(self, client: SandboxClient, box: Sandbox) -> None:
        script = "for i in 1 2 3 4; do echo o$i; sleep 0.15; echo e$i >&2; sleep 0.15; done"
        request = ExecRequest(argv=ExecRequest.shell_argv(script))
        async with client.exec(box, request) as events:
            seen = [event async for event in events]
        assert isinstance(seen[0], ExecStarted)
        assert isinstance(seen[-1], ExecExit)
        middle = [event for event in seen if isinstance(event, ExecOutput)]
        assert len(middle) == len(seen) - 2
        assert b"".join(event.data for event in middle) == b"o1\ne1\no2\ne2\no3\ne3\no4\ne4\n"
        assert {event.stream for event in middle} == {Stream.STDOUT, Stream.STDERR}

    async def test_output_arrives_while_it_is_written(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        request = ExecRequest(argv=ExecRequest.shell_argv("echo first; sleep 1.5; echo second"))
        arrived: list[float] = []
        async with client.exec(box, request) as events:
            async for event in events:
                if isinstance(event, ExecOutput):
                    arrived.append(time.monotonic())
        assert len(arrived) == 2
        assert arrived[1] - arrived[0] > 1.0

    async def test_the_pid_is_the_sandboxes_own(self, client: SandboxClient, box: Sandbox) -> None:
        request = ExecRequest(argv=("sh", "-c", "echo $$; exec sleep 7002"))
        async with client.exec(box, request) as events:
            started = await anext(events)
            assert isinstance(started, ExecStarted)
            output = await anext(events)
            assert isinstance(output, ExecOutput)
            assert int(output.data) == started.pid
            assert await text_of(client, box, f"kill -0 {started.pid} && echo alive") == "alive\n"

    async def test_binary_output_is_untouched(self, client: SandboxClient, box: Sandbox) -> None:
        script = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 1000)"
        result = await run(client, box, "python3", "-c", script)
        assert result.stdout == bytes(range(256)) * 1000

    async def test_ten_megabytes_of_output(self, client: SandboxClient, box: Sandbox) -> None:
        script = (
            "import sys, hashlib; data = bytes(i * 7 % 251 for i in range(1 << 16)) * 160;"
            "sys.stdout.buffer.write(data); sys.stderr.write(hashlib.sha256(data).hexdigest())"
        )
        result = await run(client, box, "python3", "-c", script)
        assert len(result.stdout) == 160 << 16
        assert hashlib.sha256(result.stdout).hexdigest() == result.stderr.decode()
        assert not result.truncated

    async def test_output_past_the_cap_is_dropped_and_said_so(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        request = ExecRequest(argv=("sh", "-c", "yes | head -c 300000; exit 5"))
        result = await client.run(box, request, max_output_bytes=1000)
        assert (len(result.stdout), result.truncated, result.exit_code) == (1000, True, 5)

    async def test_a_slow_reader_loses_nothing(self, client: SandboxClient, box: Sandbox) -> None:
        import asyncio

        request = ExecRequest(argv=("head", "-c", str(6 * MIB), "/dev/zero"))
        total = 0
        async with client.exec(box, request) as events:
            async for event in events:
                if isinstance(event, ExecOutput):
                    if not total:
                        await asyncio.sleep(1)
                    total += len(event.data)
        assert total == 6 * MIB


class ExecResultContract(Contract):
    @pytest.mark.parametrize("code", [0, 1, 42, 255])
    async def test_exit_codes(self, client: SandboxClient, box: Sandbox, code: int) -> None:
        result = await run(client, box, "sh", "-c", f"exit {code}")
        assert (result.exit_code, result.killed) == (code, False)

    @pytest.mark.parametrize(("signal", "code"), [("TERM", 143), ("SEGV", 139), ("KILL", 137)])
    async def test_death_by_signal_is_128_and_more(
        self, client: SandboxClient, box: Sandbox, signal: str, code: int
    ) -> None:
        result = await run(client, box, "bash", "-c", f"kill -{signal} $$; sleep 5")
        assert (result.exit_code, result.killed) == (code, False)

    async def test_a_missing_command_exits_127(self, client: SandboxClient, box: Sandbox) -> None:
        assert (await run(client, box, "no-such-command-anywhere")).exit_code == 127

    async def test_duration_is_measured(self, client: SandboxClient, box: Sandbox) -> None:
        result = await run(client, box, "sleep", "1")
        assert 0.9 < result.duration_s < 5

    async def test_a_background_child_does_not_hold_the_exec(
        self, client: SandboxClient, box: Sandbox
    ) -> None:
        started = time.monotonic()
        assert await text_of(client, box, "sleep 60 & echo done") == "done\n"
        assert time.monotonic() - started < 10

    async def test_a_daemon_outlives_its_exec(self, client: SandboxClient, box: Sandbox) -> None:
        await text_of(client, box, "setsid nohup sleep 7003 >/dev/null 2>&1 < /dev/null &")
        assert await text_of(client, box, "pgrep -fc '[s]leep 7003'") == "1\n"


def _environment(output: bytes) -> Mapping[str, str]:
    return dict(item.split("=", 1) for item in output.decode().split("\0") if "=" in item)
