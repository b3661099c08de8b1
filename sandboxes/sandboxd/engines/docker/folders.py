"""The folders of a data directory, taken by one sandboxd at a time."""

from __future__ import annotations

import fcntl
import os

from sandboxes.errors import Conflict
from sandboxes.sandboxd.engines.docker.records import Paths
from sandboxes.sandboxd.engines.runc.host import prepare_folder
from sandboxes.sandboxd.engines.runc.process import Descriptor

__all__ = ["take_folders"]


def take_folders(paths: Paths) -> Descriptor:
    """Ours until the descriptor is closed. Conflict, with the mend, if they are another's."""
    if (paths.data / "runc").exists():
        raise Conflict(f"{paths.data} belongs to the runc engine; choose another --data-dir.")
    prepare_folder(paths.data, 0o700)
    lock = Descriptor(os.open(paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    try:
        fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        for private in (paths.sandboxes, paths.snapshots, paths.archive, paths.templates):
            prepare_folder(private, 0o700)
    except BaseException as error:
        lock.close()
        if isinstance(error, BlockingIOError):
            raise Conflict(
                f"Another sandboxd uses {paths.data}; stop it or choose another --data-dir."
            ) from None
        raise
    return lock
