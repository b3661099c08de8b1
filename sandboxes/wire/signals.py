"""Death by signal, as envd words it: `status` is "signal: killed", in Go's names for signals."""

from __future__ import annotations

import re

__all__ = ["signal_number", "signal_status"]

_NAMES = {
    1: "hangup",
    2: "interrupt",
    3: "quit",
    4: "illegal instruction",
    5: "trace/breakpoint trap",
    6: "aborted",
    7: "bus error",
    8: "floating point exception",
    9: "killed",
    10: "user defined signal 1",
    11: "segmentation fault",
    12: "user defined signal 2",
    13: "broken pipe",
    14: "alarm clock",
    15: "terminated",
    16: "stack fault",
    24: "CPU time limit exceeded",
    25: "file size limit exceeded",
    26: "virtual timer expired",
    27: "profiling timer expired",
    29: "I/O possible",
    30: "power failure",
    31: "bad system call",
}
_NUMBERS = {name.lower(): number for number, name in _NAMES.items()}


def signal_status(number: int) -> str:
    return f"signal: {_NAMES.get(number, f'signal {number}')}"


def signal_number(status: str) -> int | None:
    """The signal in an `end` event's status, or None if it tells of no signal."""
    if not status.startswith("signal: "):
        return None
    name = status.removeprefix("signal: ").removesuffix(" (core dumped)").lower()
    if name in _NUMBERS:
        return _NUMBERS[name]
    unnamed = re.fullmatch(r"signal (\d+)", name)
    return int(unnamed[1]) if unnamed else None
