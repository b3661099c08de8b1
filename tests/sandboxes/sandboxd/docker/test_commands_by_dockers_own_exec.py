"""Where Docker confines containers by AppArmor or SELinux, it must start commands itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from sandboxes.errors import InvalidRequest, NotFound, Terminal
from sandboxes.sandboxd.engines.base import ExitStatus, ProcessSpec, WindowSize
from sandboxes.sandboxd.engines.docker import choosing
from sandboxes.sandboxd.engines.docker.engine import DockerEngine
from tests.sandboxes.sandboxd.docker.conftest import OwnEngine, create_in
from tests.sandboxes.sandboxd.runc.shell import Shell, finish

pytestmark = pytest.mark.docker


@pytest.fixture
async def engine(
    own_engine: OwnEngine, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[DockerEngine]:
    monkeypatch.setattr(choosing, "has_option", lambda _, name: name == "apparmor")
    async with own_engine() as engine:
        yield engine


@pytest.fixture
async def shell(engine: DockerEngine, image: str) -> Shell:
    return await create_in(engine, image)


async def test_what_a_command_gets_and_how_it_ends(shell: Shell) -> None:
    done = await shell.run(
        *("sh", "-c", "echo $HOME $PWD $X; id -un; echo err >&2; exit 3"),
        user="user",
        env={"X": "a b"},
    )
    assert (done.stdout, done.stderr) == ("/home/user /home/user a b\nuser\n", "err\n")
    assert done.exit == ExitStatus(code=3)
    assert (await shell.run("no-such-program")).code == 127
    assert (await shell.run("/etc/passwd")).code == 126
    assert (await shell.run("pwd", cwd="/usr/lib")).stdout == "/usr/lib\n"
    assert (await shell.sh("kill -9 $$")).exit == ExitStatus(signal=9)
    with pytest.raises(InvalidRequest, match="/no/such"):
        await shell.run("true", cwd="/no/such")
    with pytest.raises(InvalidRequest, match="account"):
        await shell.run("true", user="nobody-here")


async def test_output_that_overtakes_the_first_line_is_not_lost(shell: Shell) -> None:
    runs = (shell.run("echo", str(number)) for number in range(8))
    done = await asyncio.gather(*runs)
    assert [each.stdout for each in done] == [f"{number}\n" for number in range(8)]


async def test_input_is_whole_and_ends(shell: Shell) -> None:
    process = await shell.start("sha256sum", stdin=True)
    for _ in range(5):
        await process.write_stdin(bytes(range(256)) * 1000)
    await process.close_stdin()
    expected = await shell.sh(
        "python3 -c 'import sys; sys.stdout.buffer.write(bytes(range(256)) * 5000)' | sha256sum"
    )
    assert (await finish(process)).stdout == expected.stdout


async def test_a_command_need_not_read_its_input(shell: Shell) -> None:
    process = await shell.start("true", stdin=True)
    async with asyncio.timeout(20):
        assert (await finish(process)).code == 0


async def test_kill_reaches_daemonised_children(shell: Shell) -> None:
    script = (
        "(setsid sh -c 'trap \"\" TERM HUP; sleep 4001' >/dev/null 2>&1 &);"
        "( ( setsid sleep 4002 & ) & ); sleep 4003 & echo started; exec sleep 4004"
    )
    process = await shell.start("sh", "-c", script, user="user")
    assert (await anext(process.output()))[1] == b"started\n"
    await process.kill_tree()
    await process.kill_tree()
    assert await process.wait() == ExitStatus(signal=9)
    assert "400" not in (await shell.run("ps", "-eo", "args")).stdout


async def test_a_signal_reaches_the_command_alone(shell: Shell) -> None:
    process = await shell.start(
        "sh", "-c", "trap 'echo got; exit 9' USR1; while :; do sleep .1; done"
    )
    await asyncio.sleep(0.3)
    await process.signal(10)
    done = await finish(process)
    assert (done.stdout, done.code) == ("got\n", 9)
    with pytest.raises(NotFound):
        await process.signal(10)


async def test_a_terminal_has_its_size(shell: Shell) -> None:
    spec = ProcessSpec(argv=["sh"], user="user", terminal=WindowSize(cols=91, rows=31))
    process = await shell.engine.spawn(shell.id, spec)
    await process.write_stdin(b"stty size; exit 4\n")
    done = await finish(process)
    assert "31 91" in done.stdout
    assert done.code == 4


async def test_cancelling_a_start_leaves_nothing(shell: Shell) -> None:
    for step in range(8):
        task = asyncio.create_task(shell.start("sleep", "4009"))
        await asyncio.sleep(step * 0.02)
        if task.done():
            await (await task).kill_tree()
            continue
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert "sleep 4009" not in (await shell.run("ps", "-eo", "args")).stdout


async def test_a_dead_sandbox_is_terminal(engine: DockerEngine, shell: Shell) -> None:
    record = engine._sandboxes[shell.id].record
    await engine._api.remove(record.container_id)
    with pytest.raises(Terminal):
        await shell.run("true")
