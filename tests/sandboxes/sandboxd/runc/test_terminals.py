"""A command on a pseudo-terminal."""

from __future__ import annotations

import asyncio

import pytest

from sandboxes.errors import Conflict, InvalidRequest
from sandboxes.sandboxd.engines.base import ProcessSpec, RunningProcess, WindowSize
from tests.sandboxes.sandboxd.runc.shell import Shell, finish

pytestmark = pytest.mark.sandbox


async def _start(shell: Shell, *argv: str, user: str = "user") -> RunningProcess:
    spec = ProcessSpec(argv=argv, user=user, terminal=WindowSize(cols=100, rows=30))
    return await shell.engine.spawn(shell.id, spec)


async def test_program_sees_a_terminal_of_its_own(shell: Shell) -> None:
    process = await _start(
        shell, "sh", "-c", "tty; stty size; echo $TERM; test -t 0 && test -t 1 && test -t 2"
    )
    done = await finish(process)
    assert done.stdout.split() == ["/dev/pts/0", "30", "100", "xterm-256color"]
    assert done.code == 0


async def test_typing_and_job_control(shell: Shell) -> None:
    process = await _start(shell, "bash", "--norc")
    reading = asyncio.create_task(finish(process))
    await process.write_stdin(b"sleep 60\n")
    await asyncio.sleep(0.2)
    await process.write_stdin(b"\x03")
    await process.write_stdin(b"echo $((6*7)); exit 4\n")
    async with asyncio.timeout(5):
        done = await reading
    assert "42" in done.stdout
    assert "no job control" not in done.stdout
    assert done.code == 4


async def test_resize_reaches_the_program(shell: Shell) -> None:
    process = await _start(
        shell, "bash", "-c", "trap 'stty size; exit' WINCH; echo up; while :; do sleep 0.02; done"
    )
    output = process.output()
    assert (await anext(output))[1] == b"up\r\n"
    await process.resize(WindowSize(cols=50, rows=20))
    assert await anext(output) == ("terminal", b"20 50\r\n")
    await process.kill_tree()


async def test_pipes_have_no_size_and_terminals_no_end(shell: Shell) -> None:
    process = await shell.start("sleep", "10")
    with pytest.raises(InvalidRequest):
        await process.resize(WindowSize(cols=1, rows=1))
    terminal = await _start(shell, "sleep", "10")
    with pytest.raises(Conflict):
        await terminal.close_stdin()
    await process.kill_tree()
    await terminal.kill_tree()


async def test_account_owns_its_terminal(shell: Shell) -> None:
    done = await finish(await _start(shell, "sh", "-c", "stat -c %U $(tty); echo x > $(tty)"))
    assert done.stdout.split() == ["user", "x"]
