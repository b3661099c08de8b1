"""Further processes of one console: another web process, and commands of `manage.py`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.console.api.server import CHECKOUT, environment

__all__ = ["Replica", "manage", "web_process"]


class Replica:
    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self.process = process
        self.url = url

    def crash(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def web_process(folder: Path, *, redis_socket: str, sandboxd_socket: str) -> Iterator[Replica]:
    """A second web process on the database in `folder`."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    listening.set_inheritable(True)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    settings = environment(folder, redis_socket=redis_socket, sandboxd_socket=sandboxd_socket)
    argv = ["-m", "uvicorn", "console.asgi:application", "--fd", str(listening.fileno())]
    with (folder / "replica.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, *argv],
            cwd=CHECKOUT,
            env={**os.environ, **settings},
            pass_fds=[listening.fileno()],
            stdout=log,
            stderr=log,
        )
    listening.close()
    try:
        _wait_until_it_answers(url, process)
        yield Replica(process, url)
    finally:
        process.kill()
        process.wait()


def _wait_until_it_answers(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            httpx.get(f"{url}/v2/sandboxes")
            return
        except httpx.TransportError:
            assert process.poll() is None, "the replica did not start"
            assert time.monotonic() < deadline, "the replica does not answer"
            time.sleep(0.1)


def manage(
    *argv: str, folder: Path, redis_socket: str, sandboxd_socket: str, **environ: str
) -> str:
    settings = environment(folder, redis_socket=redis_socket, sandboxd_socket=sandboxd_socket)
    done = subprocess.run(
        [sys.executable, "manage.py", *argv],
        cwd=CHECKOUT,
        env={**os.environ, **settings, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
