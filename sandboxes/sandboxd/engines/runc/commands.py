"""Host programs (runc, cp, rm) run to their end, and ended with whoever runs them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sandboxes.errors import Capacity, Internal

__all__ = ["command", "host_errors"]

_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
# The program dies with sandboxd, even with kill -9: the next start must not race with it.
_DIE_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")


async def command(*argv: str | Path) -> None:
    """Internal with what it wrote if it fails, Capacity if the disk is full. Killed on
    cancellation. Its output goes to a file: a pipe would be held open by what it leaves running."""
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            *_DIE_WITH_US,
            *(os.fspath(word) for word in argv),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=_ENV,
        )
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            raise
        if code == 0:
            return
        log.seek(0)
        text = log.read(20_000).decode(errors="replace").strip()
    if "No space left on device" in text:
        raise Capacity(_NO_SPACE[1])
    last = text.splitlines()[-1] if text else "it wrote nothing"
    raise Internal(f"{argv[0]} failed (exit {code}): {last}", detail=text)


@contextlib.contextmanager
def host_errors() -> Iterator[None]:
    """Raises `sandboxes.errors` in place of any OSError of the block."""
    try:
        yield
    except OSError as error:
        kind, text = _SENTENCES.get(
            error.errno or 0,
            (Internal, f"The host refused it ({error.strerror}); see sandboxd's log."),
        )
        raise kind(text, detail=str(error)) from error


_NO_SPACE = (Capacity, "The disk of the sandboxes is full; free some space and try again.")
_NO_FILES = (Capacity, "sandboxd has too many files open; raise its limit or end some commands.")
_SENTENCES = {
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _NO_SPACE,
    errno.EMFILE: _NO_FILES,
    errno.ENFILE: _NO_FILES,
    errno.ENOMEM: (Capacity, "The host is out of memory; end some sandboxes and try again."),
    errno.EAGAIN: (Capacity, "The host can start no more processes; end some and try again."),
}
