"""The whole product on one machine: what `manage.py up` does, in order."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from console.embedded.accounts import Launcher, ensure_service_account, find_program
from console.embedded.errors import CannotStart
from console.embedded.layout import Layout
from console.embedded.supervisor import Child, Supervisor
from console.embedded.template_build import build_in_background

__all__ = ["Options", "run"]

Announce = Callable[[str], None]

_PATIENCE_FOR_THE_PREVIOUS_RUN_S = 3.0
_SANDBOX_PACKAGES = {"runc": "runc", "nft": "nftables", "mmdebstrap": "mmdebstrap"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    data: Path
    host: str = "127.0.0.1"
    port: int = 8000
    build_template: bool = True


async def run(options: Options, *, checkout: Path, announce: Announce) -> None:
    """Start everything and keep it running until SIGTERM, SIGINT or SIGHUP; then stop in order.

    CannotStart, with nothing left running, if something essential does not come up.
    """
    account = ensure_service_account()
    layout = Layout.of(options.data)
    layout.prepare(account)
    url = f"http://{_shown_host(options.host)}:{options.port}"
    with _only_one(layout, url), _listen(options) as listener:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, stop.set)
        supervisor = Supervisor(logs=layout.logs, announce=announce)
        product = _Product(layout, Launcher(account=account, checkout=checkout))
        starting = asyncio.create_task(
            _start(product, supervisor, listener, announce, options, url)
        )
        stopping = asyncio.create_task(stop.wait())
        background: asyncio.Task[None] | None = None
        try:
            await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                if options.build_template and os.geteuid() == 0:
                    background = asyncio.create_task(
                        build_in_background(layout, product.environ, announce)
                    )
                await stopping
            announce("Stopping; sandboxes stay as they are.")
        finally:
            for task in (starting, stopping, background):
                if task is not None:
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError, CannotStart):
                        await task
            await supervisor.stop()
    announce("Stopped.")


async def _start(
    product: _Product,
    supervisor: Supervisor,
    listener: socket.socket,
    announce: Announce,
    options: Options,
    url: str,
) -> None:
    begun = time.monotonic()

    async def start(child: Child) -> None:
        took = await supervisor.start(child)
        announce(f"{child.name:10} ready in {took:.1f} s")

    redis = product.redis()
    if redis is not None:
        await start(redis)
    sandboxd = product.sandboxd(announce)
    starting = [asyncio.create_task(start(sandboxd))] if sandboxd is not None else []
    try:
        await supervisor.run_once(product.prepare())
        announce(f"{'database':10} ready")
        await start(product.web(listener))
        await asyncio.gather(*starting)
        await start(product.worker())
        await start(product.beat())
    finally:
        for task in starting:
            task.cancel()
        await asyncio.gather(*starting, return_exceptions=True)
    announce("")
    announce(f"Skillyard runs at {url} (started in {time.monotonic() - begun:.1f} s).")
    with contextlib.suppress(FileNotFoundError):
        login = json.loads(product.layout.first_login.read_text())
        announce(f"First login: {login['username']} / {login['password']}")
        announce("It is shown at every start until that password is changed.")
    announce(f"Logs are in {product.layout.logs}. Ctrl-C stops it; sandboxes stay.")


class _Product:
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
        return self._child("prepare", self.launcher.unprivileged("manage.py", "prepare"))

    def sandboxd(self, announce: Announce) -> Child | None:
        if os.geteuid() != 0:
            announce(
                "Not root, so no sandboxes on this machine: run it with sudo for them, or add a "
                "backend elsewhere in the console."
            )
            return None
        missing = [name for program, name in _SANDBOX_PACKAGES.items() if not find_program(program)]
        if missing:
            raise CannotStart(
                f"Sandboxes need more packages: `apt-get install {' '.join(missing)}`."
            )
        argv = self.launcher.privileged("-m", "sandboxes.sandboxd", "serve")
        argv += ["--data-dir", str(self.layout.sandboxd)]
        argv += ["--templates-dir", str(self.layout.templates)]
        argv += ["--socket", str(self.layout.socket)]
        argv += ["--socket-group", self.launcher.account.name]
        return self._child("sandboxd", argv, ready=lambda: _accepts(self.layout.socket))

    def web(self, listener: socket.socket) -> Child:
        argv = self.launcher.unprivileged("-m", "console.embedded.web", str(listener.fileno()))
        address = listener.getsockname()[:2]
        return self._child(
            "web", argv, ready=lambda: _serves_http(address), pass_fds=(listener.fileno(),)
        )

    def worker(self) -> Child:
        argv = self.launcher.unprivileged("-m", "celery", "-A", "console", "worker")
        argv += ["--pool=threads", "--concurrency=4", "--without-gossip", "--without-mingle"]
        argv += ["--loglevel=INFO", "--hostname=worker@skillyard"]
        # A running build is taken up again by the next start, so it need not be waited for.
        stop = ((signal.SIGTERM, 3.0), (signal.SIGQUIT, 2.0))
        return self._child("worker", argv, stop=stop)

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
        stop: tuple[tuple[signal.Signals, float], ...] = ((signal.SIGTERM, 5.0),),
        pass_fds: tuple[int, ...] = (),
    ) -> Child:
        return Child(
            name=name,
            argv=argv,
            env=self.environ,
            cwd=self.launcher.checkout,
            ready=ready,
            stop=stop,
            pass_fds=pass_fds,
        )


@contextlib.contextmanager
def _only_one(layout: Layout, url: str) -> Iterator[None]:
    """Holds the lock of the data directory, which the kernel frees however we end."""
    with layout.lock.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            who = lock.read().split()
            pid, where = [*who, "?", "?"][:2]
            raise CannotStart(
                f"Skillyard already runs on {layout.data}, at {where}: stop it with `kill {pid}` "
                "first, or start another with --data-dir and --port."
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()} {url}\n")
        lock.flush()
        yield


@contextlib.contextmanager
def _listen(options: Options) -> Iterator[socket.socket]:
    """The web's listening socket. Waits a little for the previous run's web to let go of it."""
    try:
        address = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise CannotStart(f"{options.host!r} is no address to listen on: {error}.") from error
    deadline = time.monotonic() + _PATIENCE_FOR_THE_PREVIOUS_RUN_S
    with socket.socket(address[0], socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        while True:
            try:
                listener.bind(address[4])
                break
            except OSError as error:
                if error.errno == errno.EADDRINUSE and time.monotonic() < deadline:
                    time.sleep(0.1)
                    continue
                raise CannotStart(
                    f"Port {options.port} of {options.host} cannot be used ({error.strerror}): stop "
                    f"what has it, or choose another: `make up ARGS='--port {options.port + 1}'`."
                ) from error
        listener.listen(128)
        yield listener


def _shown_host(host: str) -> str:
    return {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)  # noqa: S104


async def _accepts(path: Path) -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(str(path))
    except OSError:
        return False
    writer.close()
    return True


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
    """Whether the console answers at all; the socket itself accepts before it does."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address[0], address[0])  # noqa: S104
    try:
        reader, writer = await asyncio.open_connection(host, address[1])
        writer.write(b"HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = await reader.readline()
        writer.close()
    except (OSError, TimeoutError):
        return False
    return answer.startswith(b"HTTP/1.1 ")
