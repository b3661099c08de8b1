"""How much memory this process took at its highest, in between two points."""

from __future__ import annotations

import gc
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["PeakMemory", "peak_bytes"]


class PeakMemory:
    """Linux only: elsewhere it sees no growth. Other threads are counted too."""

    grown_bytes = 0

    def __enter__(self) -> Self:
        gc.collect()
        self._before = _reset_peak()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.grown_bytes = peak_bytes() - self._before


def _reset_peak() -> int:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return peak_bytes()
    return _status("VmRSS")


def peak_bytes(pid: int | str = "self") -> int:
    return _status("VmHWM", pid)


def _status(field: str, pid: int | str = "self") -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
