"""Starting a command in a sandbox: its request, its pipes, its cgroup."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import time
from typing import Any

from sandboxes.errors import InvalidRequest, SandboxError, Terminal
from sandboxes.sandboxd.engines.base import ProcessSpec
from sandboxes.sandboxd.engines.runc.groups import ExecGroup
from sandboxes.sandboxd.engines.runc.process import Descriptor, RuncProcess, make_pipe
from sandboxes.sandboxd.engines.runc.sandbox import RuncSandbox
from sandboxes.sandboxd.engines.runc.spawning import SpawnerClient

__all__ = ["start"]

# Names of cgroups: those of an earlier sandboxd may still be there.
_RUN = format(time.time_ns(), "x")
_numbers = itertools.count()


async def start(spawner: SpawnerClient, sandbox: RuncSandbox, process: ProcessSpec) -> RuncProcess:
    """All or nothing, also when cancelled."""
    init = sandbox.init_pidfd
    request = _request(sandbox, process)
    try:
        group = sandbox.cgroup.make_exec(f"exec-{_RUN}-{next(_numbers)}")
    except FileNotFoundError:
        raise Terminal(f"The sandbox {sandbox.id} has died; create a new one.") from None
    try:
        return await _start(spawner, sandbox, process, request, group, init)
    except BaseException:
        # Whatever is on its way in that group is not wanted any more.
        await asyncio.shield(_clear(sandbox, group))
        raise


async def _start(
    spawner: SpawnerClient,
    sandbox: RuncSandbox,
    process: ProcessSpec,
    request: dict[str, Any],
    group: ExecGroup,
    init: int,
) -> RuncProcess:
    theirs: list[Descriptor] = []
    stdin: Descriptor | None = None
    outputs: dict[str, Descriptor] = {}
    if process.terminal is None:
        if process.stdin:
            read, stdin = make_pipe(ours=1)
            theirs.append(read)
        for name in ("stdout", "stderr"):
            outputs[name], write = make_pipe(ours=0)
            theirs.append(write)
    places: list[Descriptor] = []
    if group.directory is not None:
        flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
        places.append(Descriptor(os.open(group.directory, flags)))
    request["marked"] = group.directory is None
    try:
        fds = [end.fileno() for end in (*places, *theirs)]
        spawned = await spawner.spawn(request, [init, *fds], on_mark=group.mark)
    finally:
        for end in (*places, *theirs):
            end.close()
    for fd in spawned.fds:
        os.set_blocking(fd, False)
        outputs["terminal"] = Descriptor(fd)
    on_exit = functools.partial(sandbox.tidy_execs, group)
    return RuncProcess(spawner, spawned, group=group, stdin=stdin, outputs=outputs, on_exit=on_exit)


def _request(sandbox: RuncSandbox, process: ProcessSpec) -> dict[str, Any]:
    env = {**sandbox.record.env, **sandbox.proxy_env, **process.env}
    if not process.argv or not process.argv[0]:
        raise InvalidRequest("The command is empty; name a program.")
    texts = [*process.argv, *env, *env.values(), process.user, process.cwd or "/"]
    if any("\0" in text for text in texts) or any("=" in name for name in env):
        raise InvalidRequest("A command can't hold a NUL, nor the name of a variable a “=”.")
    terminal = process.terminal
    return {
        "argv": list(process.argv),
        "user": process.user,
        "cwd": process.cwd,
        "env": env,
        "terminal": [terminal.rows, terminal.cols] if terminal else None,
        "cgroup_tasks": sandbox.cgroup.v1_tasks(),
    }


async def _clear(sandbox: RuncSandbox, group: ExecGroup) -> None:
    with contextlib.suppress(SandboxError):
        await group.kill()
    sandbox.tidy_execs(group)
