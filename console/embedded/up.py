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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from console.embedded.accounts import Launcher, ensure_service_account
from console.embedded.errors import CannotStart
from console.embedded.layout import Layout
from console.embedded.product import Product
from console.embedded.supervisor import Child, Supervisor
from console.embedded.template_build import build_in_background

__all__ = ["Options", "only_one", "run"]

Announce = Callable[[str], None]

_PATIENCE_FOR_THE_PREVIOUS_RUN_S = 3.0


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
    with only_one(layout, url), _listen(options) as listener:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, stop.set)
        supervisor = Supervisor(logs=layout.logs, announce=announce)
        product = Product(layout, Launcher(account=account, checkout=checkout))
        product.environ.setdefault("SKILLYARD_ALLOWED_HOSTS", ",".join(_names_of(options.host)))
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
    product: Product,
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
        await start(product.web(listener))
        await asyncio.gather(*starting)
        for worker in product.workers():
            await start(worker)
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


@contextlib.contextmanager
def only_one(layout: Layout, url: str) -> Iterator[None]:
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


def _names_of(host: str) -> list[str]:
    """What browsers may call this machine when it listens on `host`."""
    names = ["localhost", "127.0.0.1", "[::1]"]
    if _shown_host(host) == host:
        return list(dict.fromkeys([*names, f"[{host}]" if ":" in host else host]))
    own = socket.gethostname()
    with contextlib.suppress(OSError):
        names += [str(found[4][0]) for found in socket.getaddrinfo(own, None, socket.AF_INET)]
    return list(dict.fromkeys([*names, own, socket.getfqdn()]))


def _shown_host(host: str) -> str:
    return {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)  # noqa: S104
