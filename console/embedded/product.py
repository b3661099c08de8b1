"""The processes of one machine's Skillyard: what each is run with, and when it is ready."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from console.embedded.accounts import Launcher, find_program
from console.embedded.errors import CannotStart
from console.embedded.layout import Layout
from console.embedded.supervisor import Child
from sandboxes.errors import Unsupported
from sandboxes.sandboxd.engines.runc.rootless import checks
from sandboxes.sandboxd.templates import TemplateStore

__all__ = ["Product"]


class Product:
    """The processes, in the order in which they start."""

    def __init__(self, layout: Layout, launcher: Launcher) -> None:
        self.layout = layout
        self.launcher = launcher
        self.environ = layout.environment()

    def redis(self) -> Child | None:
        """Ours, on a private socket, unless REDIS_URL names another."""
        if "REDIS_URL" in os.environ:
            return None
        program = find_program("redis-server", "valkey-server")
        if program is None:
            raise CannotStart(
                "Neither redis-server nor valkey-server is installed: `apt-get install "
                "redis-server`, or set REDIS_URL to a server of yours."
            )
        path = self.layout.redis_socket
        settings = {
            "port": "0",
            "unixsocket": str(path),
            "unixsocketperm": "700",
            "dir": str(self.layout.redis),
            "appendonly": "yes",
            "save": "",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
            "logfile": "",
        }
        flags = [part for name, value in settings.items() for part in (f"--{name}", value)]
        argv = self.launcher.unprivileged_program(program, *flags)
        return self._child("redis", argv, ready=lambda: _redis_answers(path))

    def prepare(self) -> Child:
        """For where no web process does it."""
        return self._child("prepare", self.launcher.unprivileged("manage.py", "prepare"))

    def sandboxd(self, announce: Callable[[str], None]) -> Child | None:
        """As root, or without it where this account may map ids; else None, and why."""
        rootless = os.geteuid() != 0
        if rootless and not self._may_do_without_root(announce):
            return None
        argv = self.launcher.privileged("-m", "sandboxes.sandboxd", "serve")
        argv += ["--data-dir", str(self.layout.sandboxd)]
        argv += ["--templates-dir", str(self.layout.templates)]
        argv += ["--socket", str(self.layout.socket)]
        if not rootless:
            argv += ["--socket-group", self.launcher.account.name]
        return self._child("sandboxd", argv, ready=lambda: _sandboxd_serves(self.layout.socket))

    def _may_do_without_root(self, announce: Callable[[str], None]) -> bool:
        try:
            checks.check(self.layout.sandboxd)
        except Unsupported as missing:
            announce(
                f"No sandboxes on this machine. {missing} Or run it with sudo, or add a backend "
                "elsewhere in the console."
            )
            return False
        announce("Not root, so sandboxes have no limits of memory, processes and CPU.")
        if not TemplateStore(self.layout.templates).list():
            announce(
                "There is no base template yet; without root, bring one: `manage.py template import "
                "base rootfs.tar`."
            )
        return True

    def web(self, listener: socket.socket) -> Child:
        argv = self.launcher.unprivileged("-m", "console.embedded.web", str(listener.fileno()))
        address = listener.getsockname()[:2]
        return self._child(
            "web",
            argv,
            ready=lambda: _serves_http(address),
            ready_timeout_s=900.0,  # it migrates the database first
            pass_fds=(listener.fileno(),),
        )

    def workers(self) -> list[Child]:
        """One for builds alone, which may take all of its places for an hour."""
        return [self._worker("worker", "control,checks"), self._worker("builder", "builds")]

    def _worker(self, name: str, queues: str) -> Child:
        # Redis dies with the supervisor too, and a worker that is told to end would first wait for it,
        # for ever. What it leaves is taken up by the sweep.
        celery = ("-m", "celery", "-A", "console", "worker")
        argv = self.launcher.unprivileged(*celery, told_by="KILL")
        argv += ["--pool=threads", "--concurrency=4", "--without-gossip", "--without-mingle"]
        argv += ["--loglevel=INFO", f"--hostname={name}@skillyard", f"--queues={queues}"]
        # A running build is taken up again by the next start, so it need not be waited for.
        stop = ((signal.SIGTERM, 3.0), (signal.SIGQUIT, 2.0))
        return self._child(name, argv, stop=stop)

    def beat(self) -> Child:
        schedule = self.layout.console / "beat-schedule"
        argv = self.launcher.unprivileged("-m", "celery", "-A", "console", "beat")
        argv += ["--loglevel=INFO", "--pidfile=", f"--schedule={schedule}"]
        return self._child("beat", argv)

    def _child(
        self,
        name: str,
        argv: list[str],
        *,
        ready: Callable[[], Awaitable[bool]] | None = None,
        ready_timeout_s: float = 60.0,
        stop: tuple[tuple[signal.Signals, float], ...] = ((signal.SIGTERM, 5.0),),
        pass_fds: tuple[int, ...] = (),
    ) -> Child:
        return Child(
            name=name,
            argv=argv,
            env=self.environ,
            cwd=self.launcher.checkout,
            ready=ready,
            ready_timeout_s=ready_timeout_s,
            stop=stop,
            pass_fds=pass_fds,
        )


async def _sandboxd_serves(path: Path) -> bool:
    """Whether its engine is up; the socket is there before that."""
    try:
        return await _answers(*await asyncio.open_unix_connection(str(path)), "/sandboxd/health")
    except OSError:
        return False


async def _redis_answers(path: Path) -> bool:
    try:
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b"PING\r\n")
        answer = await asyncio.wait_for(reader.readline(), 2)
        writer.close()
    except (OSError, TimeoutError):
        return False
    return answer.startswith(b"+PONG")


async def _serves_http(address: tuple[str, int]) -> bool:
    """Whether the console answers; the socket itself accepts before it does."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address[0], address[0])  # noqa: S104
    try:
        return await _answers(*await asyncio.open_connection(host, address[1]), "/")
    except OSError:
        return False


async def _answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> bool:
    try:
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        writer.write(request.encode())
        return (await reader.readline()).startswith(b"HTTP/1.1 ")
    finally:
        writer.close()
