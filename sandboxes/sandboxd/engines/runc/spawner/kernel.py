"""System calls that the standard library has no name for, for a process with one thread.

`PyDLL` keeps the interpreter lock held across the call: a child made by `clone` would otherwise
wait for a lock that no other thread is left to release. Numbers are from the kernel's uapi headers;
those of calls added since 5.1 are the same on every architecture.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct

_libc = ctypes.PyDLL(None, use_errno=True)

_SYS_CLONE3 = 435
_SYS_CLOSE_RANGE = 436

CLONE_PARENT = 0x00008000
CLONE_INTO_CGROUP = 0x200000000
_CLONE_NEWCGROUP = 0x02000000
_CLONE_NEWUSER = 0x10000000
_NAMESPACES = (
    0x00020000  # mount
    | 0x20000000  # pid
    | 0x40000000  # network
    | 0x08000000  # ipc
    | 0x04000000  # uts
    | _CLONE_NEWCGROUP
)

_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522
_KEYCTL_JOIN_SESSION_KEYRING = 1
_SYS_KEYCTL = {"x86_64": 250, "aarch64": 219}
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
_SYS_RT_SIGACTION = {"x86_64": 13, "aarch64": 134}
_SIGSET_BYTES = 8

# Read at start: once inside a sandbox, nothing of the host is to be looked up any more.
with open("/proc/sys/kernel/cap_last_cap", "rb") as _file:
    _LAST_CAPABILITY = int(_file.read())


class _Filter(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _prctl(option: int, value: int, what: str) -> None:
    _check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), what)


def default_signals() -> None:
    """Every signal to its default action, also those that glibc keeps for itself and Python can't name:
    whoever started us may have ignored them, as `make` does, and commands would inherit that."""
    number_of_call = _SYS_RT_SIGACTION[os.uname().machine]
    default = bytes(32)  # struct kernel_sigaction: SIG_DFL, no flags, no restorer, nothing blocked
    for number in set(range(1, signal.NSIG)) - {signal.SIGKILL, signal.SIGSTOP}:
        result = _libc.syscall(number_of_call, number, default, None, _SIGSET_BYTES)
        _check(result, "rt_sigaction")


def clone(flags: int, cgroup_fd: int | None = None) -> int:
    """fork() with clone3 flags: the child's pid, or 0 in the child.

    A child born into `cgroup_fd` needs no migration, which costs milliseconds: the kernel waits
    for every CPU before it moves a process, but not before it starts one.
    """
    if cgroup_fd is not None:
        flags |= CLONE_INTO_CGROUP
    # A sibling inherits its exit signal; the kernel refuses CLONE_PARENT together with one.
    exit_signal = 0 if flags & CLONE_PARENT else int(signal.SIGCHLD)
    arguments = struct.pack("11Q", flags, 0, 0, 0, exit_signal, 0, 0, 0, 0, 0, cgroup_fd or 0)
    buffer = ctypes.create_string_buffer(arguments, len(arguments))
    return _check(_libc.syscall(_SYS_CLONE3, buffer, len(arguments)), "clone3")


def enter_namespaces(pidfd: int, *, own_users: bool) -> None:
    """Into every namespace of that process at once (Linux 5.8); its pid namespace takes effect
    for children only. `own_users`: it has a user namespace of its own; the kernel refuses to enter
    the one that we are in."""
    wanted = _NAMESPACES | (_CLONE_NEWUSER if own_users else 0)
    _check(_libc.setns(pidfd, wanted), "setns")


def new_cgroup_namespace() -> None:
    _check(_libc.unshare(_CLONE_NEWCGROUP), "unshare")


def forbid_inspection() -> None:
    """Nobody but host root may trace this process or open what is under its /proc entry."""
    _prctl(_PR_SET_DUMPABLE, 0, "prctl(PR_SET_DUMPABLE)")


def close_all_but(keep: set[int]) -> None:
    start = 0
    for fd in [*sorted(keep), 1 << 30]:
        if fd > start:
            end = 0xFFFFFFFF if fd == 1 << 30 else fd - 1
            _check(_libc.syscall(_SYS_CLOSE_RANGE, start, ctypes.c_uint(end), 0), "close_range")
        start = fd + 1


def limit_bounding_set(allowed: frozenset[int]) -> None:
    for capability in range(_LAST_CAPABILITY + 1):
        if capability not in allowed:
            _prctl(_PR_CAPBSET_DROP, capability, "prctl(PR_CAPBSET_DROP)")


def set_capabilities(allowed: frozenset[int]) -> None:
    """Permitted and effective become `allowed`; inheritable and ambient become empty."""
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, "prctl(PR_CAP_AMBIENT)")
    mask = sum(1 << capability for capability in allowed)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    data = struct.pack("6I", low, low, 0, high, high, 0)
    _check(_libc.syscall(_SYS_CAPSET[os.uname().machine], header, data), "capset")


def no_new_privileges() -> None:
    _prctl(_PR_SET_NO_NEW_PRIVS, 1, "prctl(PR_SET_NO_NEW_PRIVS)")


def load_seccomp_filter(program: bytes) -> None:
    """`program` is an array of struct sock_filter, as libseccomp exports it. Final."""
    buffer = ctypes.create_string_buffer(program, len(program))
    arguments = _Filter(len(program) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    _check(
        _libc.prctl(
            _PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_MODE_FILTER), ctypes.byref(arguments), 0, 0
        ),
        "prctl(PR_SET_SECCOMP)",
    )


def new_session_keyring() -> None:
    """An empty keyring for this process and its children instead of the one of whoever started it."""
    number = _SYS_KEYCTL[os.uname().machine]
    _check(_libc.syscall(number, _KEYCTL_JOIN_SESSION_KEYRING, None), "keyctl")
