"""Overlay mounts: a writable upper layer over read-only ones.

Mounted `volatile`: nothing of a sandbox survives a reboot, so nothing needs flushing when it is
unmounted. `redirect_dir` lets programs rename directories of the lower layers, as on any disk.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
from collections.abc import Sequence
from pathlib import Path

from sandboxes.errors import Internal

__all__ = ["MAX_DATA_DIR_CHARS", "MAX_LAYERS", "mount", "mounts_under", "unmount"]

MAX_LAYERS = 20
"""Deeper chains are flattened. All paths of one mount must fit into one page of options."""

MAX_DATA_DIR_CHARS = 120
_UMOUNT_TRIES = 50
_MNT_DETACH = 2
_MS_NOSUID_NODEV = 0x2 | 0x4

_libc = ctypes.CDLL(None, use_errno=True)


async def mount(
    target: Path,
    *,
    layers: Sequence[Path],
    upper: Path,
    work: Path,
    rootless: bool = False,
    volatile: bool = True,
) -> None:
    """`layers` from the top down. In a user namespace (`rootless`) its marks are xattrs of users,
    with which the kernel permits no `redirect_dir`."""
    lower = ":".join(str(path) for path in layers)
    options = f"lowerdir={lower},upperdir={upper},workdir={work},index=off"
    options += ",userxattr" if rootless else ",redirect_dir=on"
    if volatile:
        options += ",volatile"
    await asyncio.to_thread(_mount, str(target), options)


def _mount(target: str, options: str) -> None:
    # nodev: no device node made by any means is ever usable. Set-uid bits are void inside because
    # of no_new_privs, and outside because of nosuid.
    if _libc.mount(
        b"overlay",
        os.fsencode(target),
        b"overlay",
        ctypes.c_ulong(_MS_NOSUID_NODEV),
        os.fsencode(options),
    ):
        number = ctypes.get_errno()
        raise Internal(
            f"The sandbox's files could not be mounted: {os.strerror(number)}.", detail=options
        )


async def unmount(target: Path) -> None:
    """Idempotent. Waits a little for a busy mount, then detaches it."""
    for _ in range(_UMOUNT_TRIES):
        number = await asyncio.to_thread(_unmount, target, 0)
        if number != errno.EBUSY:
            break
        await asyncio.sleep(0.01)
    else:
        number = await asyncio.to_thread(_unmount, target, _MNT_DETACH)
    # EINVAL: not a mount point.
    if number not in (0, errno.EINVAL, errno.ENOENT):
        raise Internal(f"{target} could not be unmounted: {os.strerror(number)}.")


def _unmount(target: Path, flags: int) -> int:
    return ctypes.get_errno() if _libc.umount2(os.fsencode(target), flags) else 0


def mounts_under(folder: Path) -> list[Path]:
    """Innermost first."""
    points = [
        Path(line.split()[4].encode().decode("unicode_escape"))
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
    ]
    return [point for point in reversed(points) if folder in point.parents]
