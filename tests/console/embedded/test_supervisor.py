"""Children are started in order, kept running, heard, and stopped in reverse."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from console.embedded.errors import CannotStart
from console.embedded.supervisor import Child, Supervisor


@pytest.fixture
def heard() -> list[str]:
    return []


@pytest.fixture
def supervisor(tmp_path: Path, heard: list[str]) -> Supervisor:
    return Supervisor(logs=tmp_path, announce=heard.append)


def child(tmp_path: Path, code: str, *, name: str = "child", patience_s: float = 5) -> Child:
    return Child(
        name=name,
        argv=[sys.executable, "-c", code],
        env=dict(os.environ),
        cwd=tmp_path,
        stop=((signal.SIGTERM, patience_s),),
    )


async def until(condition: Callable[[], bool], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.02)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


SERVE = "import os,time; open('pids','a').write(f'{os.getpid()}\\n'); time.sleep(60)"


async def test_a_killed_child_is_started_again(
    supervisor: Supervisor, tmp_path: Path, heard: list[str]
) -> None:
    await supervisor.start(child(tmp_path, SERVE))
    await until(lambda: len(lines(tmp_path / "pids")) == 1)
    os.kill(int(lines(tmp_path / "pids")[0]), signal.SIGKILL)
    await until(lambda: len(lines(tmp_path / "pids")) == 2)
    await supervisor.stop()
    assert heard == ["child exited with -9; starting it again in 0.5 s"]
    assert not is_alive(int(lines(tmp_path / "pids")[1]))


async def test_a_child_that_keeps_failing_is_tried_ever_more_slowly(
    supervisor: Supervisor, tmp_path: Path, heard: list[str]
) -> None:
    await supervisor.start(child(tmp_path, "raise SystemExit(3)"))
    await until(lambda: len(heard) == 3)
    await supervisor.stop()
    assert [line.rsplit(" in ", 1)[1] for line in heard] == ["0.5 s", "1.0 s", "2.0 s"]


async def test_children_are_stopped_in_reverse_order(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    code = (
        "import signal,sys,time\n"
        "def end(*_):\n open('order','a').write(sys.argv[1] + '\\n'); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end); open(sys.argv[1], 'w').close(); time.sleep(60)"
    )
    for name in ("first", "second", "third"):
        made = child(tmp_path, code, name=name)
        await supervisor.start(
            Child(name=name, argv=[*made.argv, name], env=made.env, cwd=tmp_path)
        )
        await until((tmp_path / name).exists)
    await supervisor.stop()
    assert lines(tmp_path / "order") == ["third", "second", "first"]


async def test_a_child_that_will_not_stop_is_killed(supervisor: Supervisor, tmp_path: Path) -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SERVE
    await supervisor.start(child(tmp_path, stubborn, patience_s=0.3))
    await until(lambda: len(lines(tmp_path / "pids")) == 1)
    begun = time.monotonic()
    await supervisor.stop()
    assert time.monotonic() - begun < 5
    assert not is_alive(int(lines(tmp_path / "pids")[0]))


async def test_a_child_that_dies_before_it_is_ready_is_quoted(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    async def never() -> bool:
        return False

    made = child(tmp_path, "print('no disk left'); raise SystemExit(7)")
    failing = Child(name="db", argv=made.argv, env=made.env, cwd=tmp_path, ready=never)
    with pytest.raises(CannotStart, match=r"(?s)db exited with 7.*db\.log.*no disk left"):
        await supervisor.start(failing)
    await supervisor.stop()


async def test_a_child_that_never_gets_ready_is_not_left_behind(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    async def never() -> bool:
        return False

    made = child(tmp_path, SERVE)
    slow = Child(
        name="slow", argv=made.argv, env=made.env, cwd=tmp_path, ready=never, ready_timeout_s=1
    )
    with pytest.raises(CannotStart, match="not ready after 1 s"):
        await supervisor.start(slow)
    pids = lines(tmp_path / "pids")
    assert not [pid for pid in pids if is_alive(int(pid))]


async def test_a_missing_program_is_named(supervisor: Supervisor, tmp_path: Path) -> None:
    missing = Child(name="redis", argv=["/no/such/redis"], env={}, cwd=tmp_path)
    with pytest.raises(CannotStart, match=r"redis cannot start.*/no/such/redis"):
        await supervisor.start(missing)


async def test_logs_have_the_time_and_begin_anew_when_large(
    supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.embedded.supervisor._LOG_BYTES", 1000)
    await supervisor.run_once(child(tmp_path, "[print('line', n) for n in range(60)]", name="web"))
    assert lines(tmp_path / "web.log")[-1].endswith(" line 59")
    assert lines(tmp_path / "web.log")[-1][:2] == "20"
    assert (tmp_path / "web.log").stat().st_size < 1100
    assert (tmp_path / "web.log.1").exists()
