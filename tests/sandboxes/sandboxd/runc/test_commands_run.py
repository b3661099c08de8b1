"""Commands start as asked, their output streams, their exit is told."""

from __future__ import annotations

import asyncio

import pytest

from sandboxes.errors import Conflict, InvalidRequest, NotFound
from sandboxes.sandboxd.engines.base import ExitStatus, ProcessSpec
from tests.sandboxes.sandboxd.runc.shell import Shell, finish

pytestmark = pytest.mark.sandbox


async def test_output_and_exit_code(shell: Shell) -> None:
    done = await shell.sh("echo out; echo err >&2; exit 7")
    assert (done.stdout, done.stderr, done.code) == ("out\n", "err\n", 7)


async def test_death_by_signal_is_told_apart_from_an_exit_code(shell: Shell) -> None:
    done = await shell.sh("kill -9 $$")
    assert done.exit == ExitStatus(signal=9)


async def test_arguments_are_not_read_by_a_shell(shell: Shell) -> None:
    odd = ["$HOME", "a b", "*", "`id`", "\u4f60\u597d", "", "\n", "'\""]
    done = await shell.run("printf", "%s|", *odd)
    assert done.stdout == "".join(f"{text}|" for text in odd)


@pytest.mark.parametrize(
    ("user", "uid", "home"), [("root", 0, "/root"), ("user", 1000, "/home/user")]
)
async def test_account_comes_from_the_sandbox(shell: Shell, user: str, uid: int, home: str) -> None:
    done = await shell.sh("id -u; pwd; echo $HOME $USER $LOGNAME", user=user)
    assert done.stdout.split() == [str(uid), home, home, user, user]


async def test_user_may_be_a_number(shell: Shell) -> None:
    assert (await shell.sh("id -un", user="1000")).stdout == "user\n"


async def test_supplementary_groups_are_those_of_the_sandbox(shell: Shell) -> None:
    await shell.sh("groupadd -g 4321 extra && usermod -aG extra user")
    assert "4321" in (await shell.sh("id -G", user="user")).stdout.split()
    assert (await shell.sh("id -G")).stdout == "0\n"


async def test_unknown_user_is_refused(shell: Shell) -> None:
    with pytest.raises(InvalidRequest, match="no user “nobody-here”"):
        await shell.run("id", user="nobody-here")


async def test_missing_working_directory_is_refused(shell: Shell) -> None:
    with pytest.raises(InvalidRequest, match="/not/there"):
        await shell.run("pwd", cwd="/not/there")


async def test_working_directory_that_the_user_may_not_enter_is_refused(shell: Shell) -> None:
    with pytest.raises(InvalidRequest, match="Permission denied"):
        await shell.run("pwd", cwd="/root", user="user")


async def test_working_directory(shell: Shell) -> None:
    assert (await shell.run("pwd", cwd="/workspace", user="user")).stdout == "/workspace\n"


async def test_environment_of_the_request_wins(shell: Shell) -> None:
    done = await shell.run("env", user="user", env={"HOME": "/tmp", "LANG": "de", "X": "1 2"})
    seen = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert seen["HOME"] == "/tmp"
    assert seen["LANG"] == "de"
    assert seen["X"] == "1 2"
    assert seen["PATH"].startswith("/usr/local/sbin:")


async def test_missing_command_exits_127_as_in_a_shell(shell: Shell) -> None:
    done = await shell.run("no-such-command")
    assert done.code == 127
    assert done.stderr == "no-such-command: command not found\n"
    assert (await shell.run("/no/such/file")).code == 127


async def test_file_that_is_not_executable_exits_126(shell: Shell) -> None:
    done = await shell.run("/etc/passwd", user="user")
    assert (done.code, done.stderr) == (126, "/etc/passwd: Permission denied\n")


async def test_script_without_an_interpreter_line_runs_in_sh(shell: Shell) -> None:
    await shell.sh("echo 'echo ran $1' > /tmp/script && chmod +x /tmp/script")
    assert (await shell.run("/tmp/script", "it")).stdout == "ran it\n"


async def test_nul_in_an_argument_is_refused(shell: Shell) -> None:
    with pytest.raises(InvalidRequest):
        await shell.run("echo", "a\0b")


async def test_large_arguments_and_environment_arrive(shell: Shell) -> None:
    words = ["x" * 100_000, "y" * 100_000]
    done = await shell.run(
        "sh", "-c", "echo ${#0} ${#1} ${#BIG}", *words, env={"BIG": "z" * 90_000}
    )
    assert done.stdout.split() == ["100000", "100000", "90000"]


async def test_too_large_an_argument_exits_126(shell: Shell) -> None:
    done = await shell.run("echo", "x" * 200_000)
    assert (done.code, done.stderr) == (126, "echo: Argument list too long\n")


async def test_binary_output_of_ten_megabytes_arrives_whole(shell: Shell) -> None:
    process = await shell.start("head", "-c", "10000000", "/dev/zero")
    size = 0
    async for _, data in process.output():
        size += len(data)
        assert not data.strip(b"\0")
    assert size == 10_000_000
    assert (await process.wait()).code == 0


async def test_streams_keep_their_order(shell: Shell) -> None:
    script = "for i in 1 2 3; do echo o$i; sleep 0.03; echo e$i >&2; sleep 0.03; done"
    process = await shell.start("sh", "-c", script)
    seen = [data.decode().strip() async for _, data in process.output()]
    assert seen == ["o1", "e1", "o2", "e2", "o3", "e3"]


async def test_output_that_nobody_reads_holds_the_process(shell: Shell) -> None:
    process = await shell.start("sh", "-c", "yes | head -c 1000000; touch /tmp/done")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await process.wait()
    assert (await shell.run("test", "-e", "/tmp/done")).code == 1
    await finish(process)
    assert (await shell.run("test", "-e", "/tmp/done")).code == 0


async def test_standard_input(shell: Shell) -> None:
    process = await shell.start("sh", "-c", "cat; echo end", stdin=True)
    big = b"0123456789" * 50_000

    async def feed() -> None:
        await process.write_stdin(b"hello\n")
        await process.write_stdin(big)
        await process.close_stdin()
        await process.close_stdin()

    done, _ = await asyncio.gather(finish(process), feed())
    assert done.stdout == "hello\n" + big.decode() + "end\n"
    with pytest.raises(Conflict):
        await process.write_stdin(b"late")


async def test_without_standard_input_it_is_empty(shell: Shell) -> None:
    process = await shell.start("cat")
    with pytest.raises(Conflict):
        await process.write_stdin(b"x")
    assert (await finish(process)).stdout == ""


async def test_standard_streams_can_be_opened_by_name(shell: Shell) -> None:
    done = await shell.sh("echo a > /dev/stdout; echo b > /dev/stderr", user="user")
    assert (done.stdout, done.stderr) == ("a\n", "b\n")


async def test_exit_is_known_though_a_daemon_holds_the_output(shell: Shell) -> None:
    async with asyncio.timeout(5):
        done = await shell.sh("echo started; (setsid sleep 60 &) ; exit 3")
    assert (done.stdout, done.code) == ("started\n", 3)
    assert "sleep 60" in (await shell.run("ps", "ax")).stdout


async def test_pid_is_the_one_that_the_sandbox_sees(shell: Shell) -> None:
    process = await shell.start("sh", "-c", "echo $$")
    assert (await finish(process)).stdout == f"{process.pid}\n"


async def test_signals(shell: Shell) -> None:
    process = await shell.start(
        "sh", "-c", "trap 'echo got; exit 5' TERM; echo up; sleep 60 & wait"
    )
    output = process.output()
    assert await anext(output) == ("stdout", b"up\n")
    await process.signal(15)
    assert await anext(output) == ("stdout", b"got\n")
    assert (await process.wait()).code == 5
    with pytest.raises(NotFound):
        await process.signal(15)


async def test_default_signal_actions(shell: Shell) -> None:
    done = await shell.sh(
        "yes | head -n 1; echo ${PIPESTATUS[0]}; grep -E 'SigIgn|SigBlk' /proc/self/status"
    )
    assert done.stdout.splitlines()[:2] == ["y", str(128 + 13)]
    for line in done.stdout.splitlines()[2:]:
        assert line.split()[1].strip("0") == "", line


async def test_no_descriptor_of_the_host_is_inherited(shell: Shell) -> None:
    done = await shell.sh("ls /proc/self/fd")
    assert done.stdout.split() == ["0", "1", "2", "3"]


async def test_twenty_commands_at_once(shell: Shell) -> None:
    done = await asyncio.gather(*(shell.sh(f"sleep 0.05; echo {n}") for n in range(20)))
    assert [d.stdout for d in done] == [f"{n}\n" for n in range(20)]


async def test_cancelled_start_leaves_no_process(shell: Shell) -> None:
    for delay in (0.0, 0.001, 0.003, 0.006, 0.01):
        task = asyncio.create_task(shell.start("sleep", "4242"))
        await asyncio.sleep(delay)
        if not task.done():
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            await task.result().kill_tree()
    assert "4242" not in (await shell.run("ps", "ax")).stdout


async def test_passwd_that_is_no_file_does_not_block(shell: Shell) -> None:
    await shell.sh("rm /etc/passwd && mkfifo /etc/passwd")
    with pytest.raises(InvalidRequest):
        async with asyncio.timeout(5):
            await shell.run("true")


async def test_spawn_spec_without_a_program_is_refused(shell: Shell) -> None:
    with pytest.raises(InvalidRequest):
        await shell.engine.spawn(shell.id, ProcessSpec(argv=[], user="root"))
