"""A command in a sandbox, as sandboxd holds it: pipes or a terminal, its exit, its cgroup."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import struct
import termios
import time
from collections.abc import AsyncIterator, Callable

from sandboxes.errors import Conflict, InvalidRequest, NotFound
from sandboxes.sandboxd.engines.base import ExitStatus, RunningProcess, WindowSize
from sandboxes.sandboxd.engines.runc.groups import ExecGroup
from sandboxes.sandboxd.engines.runc.spawning import Spawned, SpawnerClient

__all__ = ["Descriptor", "RuncProcess", "make_pipe"]

_CHUNK_BYTES = 65536
_GRACE_S = 0.2
"""How long output is awaited after the exit, from children that still hold the pipes."""


class Descriptor:
    """A file descriptor that is closed once, at the latest with its last reference."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @property
    def closed(self) -> bool:
        return self._fd < 0

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()


def make_pipe(*, ours: int) -> tuple[Descriptor, Descriptor]:
    """(read, write); the end with index `ours` doesn't block. Open to every account, since only
    those who hold it can reach it, and programs open /dev/stdout by name."""
    ends = os.pipe()
    os.fchmod(ends[0], 0o666)
    os.set_blocking(ends[ours], False)
    return Descriptor(ends[0]), Descriptor(ends[1])


class RuncProcess(RunningProcess):
    def __init__(
        self,
        spawner: SpawnerClient,
        spawned: Spawned,
        *,
        group: ExecGroup,
        stdin: Descriptor | None,
        outputs: dict[str, Descriptor],
        on_exit: Callable[[], None],
    ) -> None:
        self.pid = spawned.pid
        self._spawner = spawner
        self._id = spawned.id
        self._exited = spawned.exited
        self._group = group
        self._outputs = outputs
        self._terminal = outputs.get("terminal")
        self._stdin = self._terminal or stdin
        self._writing = asyncio.Lock()
        self._exited.add_done_callback(lambda _: on_exit())

    async def output(self) -> AsyncIterator[tuple[str, bytes]]:
        sources = dict(self._outputs)
        tail = _Tail(len(sources))
        try:
            while sources:
                idle = True
                ended = self._exited.done()
                for name, source in list(sources.items()):
                    data = _read(source)
                    if data is None:
                        continue
                    if data:
                        idle = False
                        if ended:
                            tail.taken(len(data))
                        yield name, data
                    else:
                        source.close()
                        del sources[name]
                if not sources or (ended and tail.over()):
                    return
                if idle:
                    await self._wait_readable(sources, tail)
        finally:
            for source in self._outputs.values():
                source.close()

    async def _wait_readable(self, sources: dict[str, Descriptor], tail: _Tail) -> None:
        """Until there is output, or the exit; after the exit, for what is left of the grace."""
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[None] = loop.create_future()

        def wake(_: object = None) -> None:
            if not readable.done():
                readable.set_result(None)

        ended = self._exited.done()
        for source in sources.values():
            loop.add_reader(source.fileno(), wake)
        if not ended:
            self._exited.add_done_callback(wake)
        began = time.monotonic()
        try:
            async with asyncio.timeout(tail.grace_s if ended else None):
                await readable
        except TimeoutError:
            pass
        finally:
            for source in sources.values():
                loop.remove_reader(source.fileno())
            self._exited.remove_done_callback(wake)
            if ended:
                tail.grace_s -= time.monotonic() - began

    async def write_stdin(self, data: bytes) -> None:
        async with self._writing:
            view = memoryview(data)
            while view:
                if self._stdin is None or self._stdin.closed or self._exited.done():
                    raise Conflict("The process's standard input is closed; start it with one.")
                try:
                    view = view[os.write(self._stdin.fileno(), view) :]
                except BlockingIOError:
                    await self._wait_writable(self._stdin)
                except OSError:
                    raise Conflict("The process has closed its standard input.") from None

    async def _wait_writable(self, stdin: Descriptor) -> None:
        loop = asyncio.get_running_loop()
        writable: asyncio.Future[None] = loop.create_future()

        def wake(_: object = None) -> None:
            if not writable.done():
                writable.set_result(None)

        # A terminal's master may be watched for reading at the same time: watch a copy.
        copy = Descriptor(os.dup(stdin.fileno()))
        loop.add_writer(copy.fileno(), wake)
        self._exited.add_done_callback(wake)
        try:
            await writable
        finally:
            loop.remove_writer(copy.fileno())
            copy.close()
            self._exited.remove_done_callback(wake)

    async def close_stdin(self) -> None:
        if self._terminal is not None:
            raise Conflict("A terminal's input can't be closed; send Ctrl-D (the byte 4) instead.")
        async with self._writing:
            if self._stdin is not None:
                self._stdin.close()

    async def resize(self, size: WindowSize) -> None:
        if self._terminal is None:
            raise InvalidRequest("This process has no terminal to resize; start it with one.")
        if self._terminal.closed:
            raise NotFound("The process has exited.")
        packed = struct.pack("HHHH", size.rows, size.cols, 0, 0)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._terminal.fileno(), termios.TIOCSWINSZ, packed)

    async def signal(self, signal: int) -> None:
        if self._exited.done():
            raise NotFound("The process has exited.")
        await self._spawner.signal(self._id, signal)

    async def kill_tree(self) -> None:
        await self._group.kill()
        # Dead is not yet reaped: the exit is told a moment later.
        await asyncio.wait([self._exited])

    async def wait(self) -> ExitStatus:
        status = await asyncio.shield(self._exited)
        code = os.waitstatus_to_exitcode(status)
        return ExitStatus(signal=-code) if code < 0 else ExitStatus(code=code)


class _Tail:
    """What is still read once the process has exited. All that it wrote itself fits into the
    pipes, so whatever comes beyond that is from children that hold them open."""

    def __init__(self, streams: int) -> None:
        self.grace_s = _GRACE_S
        self._bytes_left = streams * 2 * _CHUNK_BYTES

    def taken(self, count: int) -> None:
        self._bytes_left -= count

    def over(self) -> bool:
        return self.grace_s <= 0 or self._bytes_left <= 0


def _read(source: Descriptor) -> bytes | None:
    """None if there is nothing yet, b"" at the end."""
    try:
        return os.read(source.fileno(), _CHUNK_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        # EIO: a terminal that nobody holds any more.
        return b""
