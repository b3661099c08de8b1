"""Network namespaces, kept alive by a bind mount and entered by throw-away threads.

A namespace belongs to a thread in Linux. A thread that has joined one is never reused; sockets that
it made, and processes that it started, stay in the namespace.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import ctypes
import errno
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sandboxes.errors import Internal, Unavailable, Unsupported
from sandboxes.sandboxd.engines.runc.network.interfaces import bring_up
from sandboxes.sandboxd.engines.runc.waiting import outcome

__all__ = ["create_namespace", "in_namespace", "remove_namespace", "run_tool"]

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
_MS_BIND = 0x1000
_MNT_DETACH = 2
_TOOL_TIMEOUT_S = 30

_SYSCTLS = {
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
    # The sandbox's root holds no capability over this namespace; without this it could not serve
    # on port 80.
    "net/ipv4/ip_unprivileged_port_start": "0",
}

_libc = ctypes.CDLL(None, use_errno=True)


async def create_namespace(path: Path) -> None:
    """A new namespace with loopback up and no IPv6, mounted on `path`. Unsupported unless root."""

    def create() -> None:
        try:
            _check(_libc.unshare(_CLONE_NEWNET))
        except PermissionError as error:
            raise Unsupported("Network namespaces need root; run sandboxd as root") from error
        for name, value in _SYSCTLS.items():
            try:
                Path("/proc/sys", name).write_text(value)
            except FileNotFoundError:
                continue  # a kernel without IPv6
        bring_up("lo")
        path.touch(mode=0o600, exist_ok=True)
        source = f"/proc/self/task/{threading.get_native_id()}/ns/net".encode()
        _check(_libc.mount(source, os.fsencode(path), None, _MS_BIND, None))

    await _in_new_thread(create)


async def in_namespace(path: Path, function: Callable[[], T]) -> T:
    """Run blocking work inside. Unavailable if there is no such namespace."""

    def join_and_run() -> T:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                _check(_libc.setns(fd, _CLONE_NEWNET))
            finally:
                os.close(fd)
        except OSError as error:
            raise Unavailable(
                f"The network of sandbox {path.name} is gone; delete the sandbox and make a new one"
            ) from error
        return function()

    return await _in_new_thread(join_and_run)


def remove_namespace(path: Path) -> None:
    """Idempotent. The kernel frees it once its last process has gone."""
    while _libc.umount2(os.fsencode(path), _MNT_DETACH) == 0:  # a crash can leave two, stacked
        continue
    if ctypes.get_errno() not in {errno.EINVAL, errno.ENOENT}:
        _check(-1)
    path.unlink(missing_ok=True)


def run_tool(*argv: str, script: str = "") -> str:
    """The output of `nft` or `ip`, run in the namespace of the calling thread. Blocks.

    Unsupported, naming the package, if it is not installed; Internal if it fails.
    """
    try:
        done = subprocess.run(
            argv, input=script, capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S
        )
    except FileNotFoundError as error:
        package = {"nft": "nftables", "ip": "iproute2"}.get(argv[0], argv[0])
        raise Unsupported(
            f"This host lacks `{argv[0]}`, which sandbox networks need; install {package}"
        ) from error
    if done.returncode != 0:
        raise Internal(
            f"`{argv[0]}` refused a change of a sandbox's network; see sandboxd's log",
            detail=f"{' '.join(argv)}: {done.stderr.strip()}",
        )
    return done.stdout


async def _in_new_thread(function: Callable[[], T]) -> T:
    future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="netns", daemon=True).start()
    return await outcome(asyncio.wrap_future(future))


def _check(result: int) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
