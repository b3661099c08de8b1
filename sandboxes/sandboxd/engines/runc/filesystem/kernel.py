"""The system calls that Python's os module lacks: openat2(2) and the type from fstatfs(2)."""

from __future__ import annotations

import ctypes
import errno
import os

__all__ = [
    "RESOLVE_BENEATH",
    "RESOLVE_IN_ROOT",
    "RESOLVE_NO_MAGICLINKS",
    "RESOLVE_NO_SYMLINKS",
    "RESOLVE_NO_XDEV",
    "is_kernel_filesystem",
    "openat2",
]

RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08
RESOLVE_IN_ROOT = 0x10

_SYS_OPENAT2 = 437  # the same on every architecture
_EAGAIN_TRIES = 256

# linux/magic.h. Writing to one of these with the host's privileges would configure the host.
_KERNEL_FILESYSTEMS = frozenset(
    {
        0x00009FA0,  # proc
        0x62656572,  # sysfs
        0x0027E0EB,  # cgroup
        0x63677270,  # cgroup2
        0x64626720,  # debugfs
        0x74726163,  # tracefs
        0x73636673,  # securityfs
        0x62656570,  # configfs
        0xCAFE4A11,  # bpf
        0xDE5E81E4,  # efivarfs
        0x00001CD1,  # devpts
        0x19800202,  # mqueue
    }
)


class _OpenHow(ctypes.Structure):
    _fields_ = [
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    ]


_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def openat2(dir_fd: int, path: str, flags: int, *, resolve: int, mode: int = 0) -> int:
    """A new descriptor, close-on-exec. Raises OSError.

    The kernel answers EAGAIN when a rename or mount anywhere on the host raced with a `..`; that
    says nothing about this path, so it is tried again.
    """
    how = _OpenHow(flags | os.O_CLOEXEC, mode, resolve)
    encoded = os.fsencode(path)
    for _ in range(_EAGAIN_TRIES):
        fd: int = _libc.syscall(
            _SYS_OPENAT2, dir_fd, encoded, ctypes.byref(how), ctypes.sizeof(how)
        )
        if fd >= 0:
            return fd
        error = ctypes.get_errno()
        if error not in {errno.EAGAIN, errno.EINTR}:
            break
    raise OSError(error, os.strerror(error), path)


def is_kernel_filesystem(fd: int) -> bool:
    """Whether the entry lies on proc, sysfs or another filesystem that is really a control panel."""
    buffer = ctypes.create_string_buffer(256)  # struct statfs is 120 bytes on 64-bit
    if _libc.fstatfs(fd, buffer) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    kind = ctypes.c_long.from_buffer(buffer).value & 0xFFFFFFFF
    return kind in _KERNEL_FILESYSTEMS
