"""How the processes of a sandbox are kept together: by cgroups, or without root by namespaces."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Protocol

__all__ = ["ExecGroup", "Groups", "SandboxGroup"]


class Groups(Protocol):
    """Those of one data directory."""

    def of(self, sandbox_id: str) -> SandboxGroup: ...

    def existing(self) -> set[str]:
        """Ids of all sandboxes that left something of theirs on the host."""

    def remove_parent(self) -> None: ...


class SandboxGroup(Protocol):
    """All processes of one sandbox. See `cgroups.SandboxCgroup`."""

    @property
    def path(self) -> str | None:
        """The cgroup, as runc is told; None: it is to make none."""

    def attach(self, init_pid: int) -> None:
        """Of a live init, before anything else is asked."""

    def v1_tasks(self) -> list[str]: ...

    def contains(self, pid: int) -> bool: ...

    def make_exec(self, name: str) -> ExecGroup:
        """For a new command. FileNotFoundError if the sandbox is gone."""

    def execs(self) -> AbstractSet[ExecGroup]: ...

    def frozen(self) -> bool: ...

    async def freeze(self, timeout_s: float = 10.0) -> None: ...

    def thaw(self) -> None: ...

    async def kill(self, timeout_s: float = 10.0) -> None: ...

    def kill_stragglers(self) -> None: ...

    async def remove(self, timeout_s: float = 5.0) -> None: ...

    def cpu_seconds(self) -> float: ...

    def memory_bytes(self) -> tuple[int, int]: ...


class ExecGroup(Protocol):
    """One command and all that it leaves running."""

    @property
    def directory(self) -> Path | None:
        """The cgroup2 directory that it is born into; None: it is marked by a namespace."""

    def mark(self, fd: int) -> None:
        """Takes over an open descriptor of the namespace that marks it."""

    async def kill(self) -> None: ...

    def populated(self) -> bool: ...

    def remove(self) -> None: ...
