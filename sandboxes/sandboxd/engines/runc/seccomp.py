"""The system call filter of every sandbox, from `seccomp.json` to the two forms it is loaded in.

runc builds its own filter from the OCI form and puts it on a sandbox's init; the spawner loads the
compiled program on every command. Both come from the same file.
"""

from __future__ import annotations

import errno
import functools
import json
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["compiled", "oci"]

_ARCHITECTURES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}
_COMPARISONS = {"SCMP_CMP_EQ": "EQ", "SCMP_CMP_MASKED_EQ": "MASKED_EQ"}
"""To their names in pyseccomp, which is imported late: it wants libseccomp, and a host without that
is to be told so by `host.check`."""


@functools.cache
def _profile() -> dict[str, Any]:
    profile: dict[str, Any] = json.loads(Path(__file__).with_name("seccomp.json").read_text())
    return profile


def oci(machine: str) -> dict[str, Any]:
    """The `linux.seccomp` object of a bundle. Only the native architecture: a program of another
    word size is killed by its first call."""
    profile = _profile()
    rules: list[dict[str, Any]] = [
        {"names": profile["allow"], "action": "SCMP_ACT_ALLOW"},
        {"names": profile["refuse"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.EPERM},
    ]
    rules += [
        {"names": [rule["name"]], "action": "SCMP_ACT_ALLOW", "args": [rule["allow_when"]]}
        for rule in profile["conditions"]
    ]
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": errno.ENOSYS,
        "architectures": [_ARCHITECTURES[machine]],
        "syscalls": rules,
    }


def compiled() -> bytes:
    """The same as an array of `struct sock_filter` for this machine."""
    import pyseccomp

    profile = _profile()
    filter_ = pyseccomp.SyscallFilter(pyseccomp.ERRNO(errno.ENOSYS))
    # Frees the process from any privilege question: no_new_privs is set by whoever loads it.
    filter_.set_attr(pyseccomp.Attr.CTL_NNP, 0)
    # A binary tree instead of a list: each command loads this anew, and the kernel tries it out
    # on every call number when it does.
    filter_.set_attr(pyseccomp.Attr.CTL_OPTIMIZE, 2)
    for name in profile["allow"]:
        _add(filter_, pyseccomp.ALLOW, name)
    for name in profile["refuse"]:
        _add(filter_, pyseccomp.ERRNO(errno.EPERM), name)
    for rule in profile["conditions"]:
        when = rule["allow_when"]
        values = [when["value"], *([when["valueTwo"]] if "valueTwo" in when else [])]
        _add(
            filter_,
            pyseccomp.ALLOW,
            rule["name"],
            pyseccomp.Arg(when["index"], getattr(pyseccomp, _COMPARISONS[when["op"]]), *values),
        )
    with tempfile.TemporaryFile() as file:
        filter_.export_bpf(file)
        file.seek(0)
        return file.read()


def _add(filter_: Any, action: Any, name: str, *arguments: Any) -> None:
    """Calls that the installed libseccomp does not know are left to the default: ENOSYS."""
    import pyseccomp

    if pyseccomp.resolve_syscall(pyseccomp.system_arch(), name) != -1:
        filter_.add_rule(action, name, *arguments)
